"""The dashboard: the page that people look at, and what it needs beside the API.

Owns its files, who has signed in to it, and the pulse that keeps it up to date. Everything else it
shows and does comes from the REST API, as for any other client.
"""
