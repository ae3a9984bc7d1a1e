"""Calls by the instrumented `openai` SDK, exported by the real exporters: ``otel_calls.py v2|openllmetry URL``.

Where to export to, packed or not, and whether content is captured is in the environment, as for any program. Prints a
JSON list of the answers' ids and texts.
"""

import json
import sys

import openai
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

if sys.argv[1] == "v2":
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
else:
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Where is my parcel? Ünïcode \N{PARTY POPPER}"},
    {"role": "assistant", "content": "Which one?"},
    {"role": "user", "content": "Number 42."},
]

traces, logs = TracerProvider(), LoggerProvider()
traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
logs.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
OpenAIInstrumentor().instrument(tracer_provider=traces, logger_provider=logs)
client = openai.OpenAI(base_url=f"{sys.argv[2]}/v1", max_retries=0)
ask = {"model": "support_router", "messages": MESSAGES, "max_tokens": 8, "user": "u1"}

answers = []
with traces.get_tracer("shop").start_as_current_span("GET /help"):
    plain = client.chat.completions.create(**ask)
    answers.append([plain.id, plain.choices[0].message.content])
    several = client.chat.completions.create(**ask, n=2, temperature=1.0, seed=3)
    answers.append([several.id, several.choices[0].message.content])
    streamed = list(client.chat.completions.create(**ask, stream=True))
    answers.append([streamed[0].id, "".join(c.choices[0].delta.content or "" for c in streamed if c.choices)])
traces.shutdown()
logs.shutdown()
print(json.dumps(answers))
