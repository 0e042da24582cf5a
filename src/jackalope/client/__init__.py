"""The Python library: submit tasks, follow them, and look after a broker.

Owns what a user of `from jackalope import Jackalope` touches. Speaks to the broker through
`jackalope.transport` alone, and knows nothing of its inside.
"""
