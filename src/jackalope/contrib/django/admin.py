"""The outbox in Django's admin: what waits, and what the broker has refused."""

from typing import Any, ClassVar

from django.contrib import admin

from jackalope.contrib.django.models import OutboxRow


@admin.register(OutboxRow)
class OutboxAdmin(admin.ModelAdmin):
    """Shows rows, and lets refused ones be moved again or deleted."""

    list_display: ClassVar = ["seq", "task", "error"]
    list_filter: ClassVar = [("error", admin.EmptyFieldListFilter)]
    search_fields: ClassVar = ["task", "error"]
    fields: ClassVar = ["seq", "task", "error"]
    readonly_fields: ClassVar = ["seq", "task", "error"]
    actions: ClassVar = ["move_again"]

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002  Django's signature
        """Refuse: rows are made by enqueue."""
        return False

    @admin.action(description="Move refused tasks again")
    def move_again(self, request: Any, rows: Any) -> None:  # noqa: ARG002  Django's signature
        """Let the relay try them again."""
        rows.update(error="")
