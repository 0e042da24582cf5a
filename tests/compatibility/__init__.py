"""Which features of the five designs work, and the test that shows each of them."""
