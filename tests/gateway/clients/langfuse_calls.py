"""Calls by Langfuse's `openai`, and a generation by hand, their spans sent to us: ``langfuse_calls.py URL``.

The exporter that takes them is OpenTelemetry's own, configured by the environment; nothing goes to Langfuse. Prints a
JSON list of the answers' texts.
"""

import json
import sys

from langfuse import Langfuse, propagate_attributes
from langfuse.openai import OpenAI
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is my parcel? Ünïcode"}]

langfuse = Langfuse(public_key="pk", secret_key="sk", base_url="http://127.0.0.1:9", span_exporter=OTLPSpanExporter())
client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=0)
ask = {"model": "support_router", "messages": MESSAGES, "max_tokens": 8}
about = {"user_id": "u1", "session_id": "s1", "tags": ["urgent"], "metadata": {"ticket": "42"}}
begin = langfuse.start_as_current_observation
with propagate_attributes(**about), begin(as_type="span", name="help", input={"page": "/help"}):
    plain = client.chat.completions.create(**ask)
    streamed = list(client.chat.completions.create(**ask, stream=True))
    with begin(as_type="generation", name="by hand", model="m", input=MESSAGES, output="said by hand"):
        pass
    with begin(as_type="generation", name="failed", model="m", input=MESSAGES) as failed:
        failed.update(level="ERROR", status_message="no answer")
langfuse.flush()
said = [
    plain.choices[0].message.content,
    "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices),
    "said by hand",
]
print(json.dumps(said))
