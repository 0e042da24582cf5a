"""The wire: bytes to messages and back, without a socket.

Owns the encodings of Jackalope's protocols. Knows nothing of what a message does or who sends it.
"""
