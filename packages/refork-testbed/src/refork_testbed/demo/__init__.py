"""The main job: build an agent, find where it fails, prove why, make it better."""

from refork_testbed.demo.flow import DemoRecipe, run_demo

__all__ = ["DemoRecipe", "run_demo"]
