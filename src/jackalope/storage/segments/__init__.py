"""The journal as segments: files of fixed size that are written over, not grown."""
