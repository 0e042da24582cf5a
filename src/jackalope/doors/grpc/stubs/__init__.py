"""Generated from `proto/jackalope/v1/jackalope.proto`: messages, and stubs of its services.

`python -m tests.doors.grpc.generate` makes them; a test compares. Clients in Python import them
from here.
"""
