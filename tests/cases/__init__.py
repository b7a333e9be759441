"""Cases of coherence.py, a module for each kind."""
