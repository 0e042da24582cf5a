"""The gRPC door: typed calls and streams, for clients and workers in any language.

Its contract is one file, `proto/jackalope/v1/jackalope.proto`; `stubs` is generated from it.
Nothing is loaded here: a client that needs the stubs does not need the door.
"""
