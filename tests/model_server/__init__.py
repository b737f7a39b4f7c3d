"""A stand-in for a language model: real protocols, scripted turns, every request recorded. Loopback only.

It lets the real agent CLIs run in tests without an account. `script.py` says what a turn does, `anthropic.py`
speaks one vendor's protocol, `app.py` puts protocols, queue and record together; a further protocol is one
more module beside `anthropic.py`. `python -m tests.model_server --port 0 --record FILE` prints its port.
"""
