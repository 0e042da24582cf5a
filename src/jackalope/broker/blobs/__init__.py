"""Blobs at run time: in-flight uploads, clean-up, upload tickets."""
