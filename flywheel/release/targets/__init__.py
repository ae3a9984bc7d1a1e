"""What answers requests. A target is four verbs: ``load``, ``probe``, ``unload``, ``status``."""
