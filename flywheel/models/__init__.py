"""Models on disk: getting, finding, loading and tokenising them. The one place that loads a model.

Importing this package loads no torch; `load_model` and `load_tokenizer` do when called.
"""

from flywheel.models.compute import Compute, choose_compute
from flywheel.models.directory import ModelDir, cache_root
from flywheel.models.loading import load_model
from flywheel.models.pulling import pull, resolve
from flywheel.models.tiny import make_tiny
from flywheel.models.tokenizer import ChatTokenizer, StreamDecoder, load_tokenizer

__all__ = [
    "ChatTokenizer",
    "Compute",
    "ModelDir",
    "StreamDecoder",
    "cache_root",
    "choose_compute",
    "load_model",
    "load_tokenizer",
    "make_tiny",
    "pull",
    "resolve",
]
