"""The peer door: what nodes, standbys and the command line ask of a node."""

from jackalope.doors.peer.server import PeerDoor

__all__ = ["PeerDoor"]
