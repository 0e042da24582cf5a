"""Commands about what a namespace has: one module for each kind of object."""
