"""Builds of tests run inline, unless a test is marked `beam`."""

from inline_runner import inline_builds, runner_of_builds

__all__ = ["inline_builds", "runner_of_builds"]
