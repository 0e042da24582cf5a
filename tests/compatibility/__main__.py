"""Write the page: `python -m tests.compatibility`."""

from tests.compatibility.page import PAGE, render

PAGE.write_text(render(), "utf-8")
