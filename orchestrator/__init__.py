"""The service through which coding agents hand work to one another.

Importing this package does nothing and reads no environment; `bootstrap` builds a running service.
"""
