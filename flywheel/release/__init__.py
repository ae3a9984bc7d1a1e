"""What is served: releases, the champion pointer, replicas, probes, promotion and rollback."""
