"""Callbacks: tasks of the broker's own queue, delivered by HTTP."""

from jackalope.callbacks.service import CallbackService

__all__ = ["CallbackService"]
