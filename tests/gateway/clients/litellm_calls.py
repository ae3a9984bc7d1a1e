"""Calls by LiteLLM, which logs its own payload of each: ``litellm_calls.py URL FILE``."""

import json
import sys
import threading
from contextlib import suppress
from pathlib import Path

import litellm
from litellm.integrations.custom_logger import CustomLogger

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is my parcel? Ünïcode"}]
WANTED = 3

done = threading.Semaphore(0)


class ToFile(CustomLogger):
    """Writes the standard payload of every call as a line."""

    def log_success_event(self, kwargs, response_obj, start_time, end_time):
        self.write(kwargs)

    def log_failure_event(self, kwargs, response_obj, start_time, end_time):
        self.write(kwargs)

    def write(self, kwargs):
        with Path(sys.argv[2]).open("a") as out:
            print(json.dumps(kwargs["standard_logging_object"], default=str), file=out)
        done.release()


litellm.callbacks = [ToFile()]
ask = {
    "model": "openai/support_router",
    "api_base": f"{sys.argv[1]}/v1",
    "api_key": "unused",
    "messages": MESSAGES,
    "max_tokens": 8,
    "user": "u1",
    "metadata": {"requester_metadata": {"conversation_id": "c7"}, "tags": ["support_router"]},
}
litellm.completion(**ask)
for _chunk in litellm.completion(**ask, stream=True):
    pass
with suppress(litellm.BadRequestError):
    litellm.completion(**{**ask, "max_tokens": 10_000}, num_retries=0)
for _ in range(WANTED):
    assert done.acquire(timeout=60), "LiteLLM has not logged every call"
