"""Properties that are made once per object, without a lock: threads that ask at the same time may each make one, and wait for nobody.

Up to Python 3.11 `functools.cached_property` holds one lock for all objects of a class while it makes a value: a thread that waits there
for a result of another thread, which asks for the same property of another object, would wait for ever.
"""

from __future__ import annotations

import functools
import sys
from functools import cached_property as cached_property
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING and sys.version_info < (3, 12):

    class cached_property(functools.cached_property):
        """A property that is made when it is asked for first, and kept with its object."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            if instance is None:
                return self
            kept = instance.__dict__
            if self.attrname not in kept:
                kept[self.attrname] = self.func(instance)
            return kept[self.attrname]
