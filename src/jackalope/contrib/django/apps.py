"""The application for `INSTALLED_APPS`."""

from django.apps import AppConfig


class JackalopeConfig(AppConfig):
    """What Django knows of it."""

    name = "jackalope.contrib.django"
    label = "jackalope"
    verbose_name = "Jackalope"
    default_auto_field = "django.db.models.BigAutoField"
