"""Objects that stand in for those of the product, of which a test brings only the parts that it uses."""

from __future__ import annotations

import ctypes
from types import MemberDescriptorType
from typing import Any, Final, TypeVar, cast

import pytest

from pykraft.compiled import form

interpreted_only: Final = pytest.mark.skipif(
    form() == "compiled", reason="it replaces what compiled code calls without looking it up"
)
"""The same holds in both forms, and only in one can it be looked at from within."""

T = TypeVar("T")
SETUP: Final = "__internal_mypyc_setup"
SETUP_TYPE: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)


def stand_in(cls: type[T], **parts: object) -> T:
    """An instance of ``cls`` that was not constructed, with these parts and no other.

    Compiled code looks at the class of what it is given, so that a ``SimpleNamespace`` will not do. It does
    not look whether a part is there: the process crashes where interpreted code says which one is missing.
    Parts in the place of methods and properties are those of a class derived from ``cls``: if it is compiled,
    it must be in ``[subclassed]`` of ``packaging/compiling/modules.toml``.
    """
    attributes = {name for name in parts if _is_attribute(cls, name)}
    replaced = {name: part for name, part in parts.items() if name not in attributes}
    derived = type(cls.__name__, (cls,), {"__slots__": (), **replaced}) if replaced else cls
    made = cast(T, _unconstructed(derived))
    for name in attributes:
        object.__setattr__(made, name, parts[name])
    return made


def _is_attribute(cls: type, name: str) -> bool:
    """It is one of an instance; what none has is refused when it is set."""
    for one in cls.__mro__:
        if name in vars(one):
            is_compiled = name in vars(one).get("__mypyc_attrs__", ())
            return is_compiled or isinstance(vars(one)[name], MemberDescriptorType)
    return True


def _unconstructed(cls: type) -> object:
    """``__new__`` of a compiled class calls ``__init__``; this calls what it has an instance made by."""
    setup: Any = next((vars(one)[SETUP] for one in cls.__mro__ if SETUP in vars(one)), None)
    if setup is None:
        return object.__new__(cls)
    # A method descriptor: head, class, name, qualified name, and where name and function of the method are.
    words = ctypes.cast(id(setup), ctypes.POINTER(ctypes.c_void_p))
    method = ctypes.cast(words[5] or 0, ctypes.POINTER(ctypes.c_void_p))
    return SETUP_TYPE(method[1] or 0)(cls)
