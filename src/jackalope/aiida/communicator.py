"""The communicator under its earlier name; new programs import `jackalope.kiwipy.communicator`."""

from jackalope.kiwipy.communicator import JackalopeCommunicator, connect

__all__ = ["JackalopeCommunicator", "connect"]
