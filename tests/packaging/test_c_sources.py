"""What is changed in the C sources that the compiler writes."""

from compiling.c_sources import with_weak_references

SOURCE = """
static int Held_traverse(HeldObject *self)
{
    Py_VISIT(*((PyObject **)((char *)self + sizeof(HeldObject))));
    Py_VISIT(*((PyObject **)((char *)self + sizeof(PyObject *) + sizeof(HeldObject))));
}
static int CPyDef_Held_clear(PyObject *cpy_r_self)
{
    Py_CLEAR(*((PyObject **)((char *)self + sizeof(PyObject *) + sizeof(HeldObject))));
}
Held_dealloc(HeldObject *self)
{
    PyObject_GC_UnTrack(self);
    CPyDef_Held_clear((PyObject *)self);
}
static PyTypeObject CPyType_Held_template_ = {
    .tp_weaklistoffset = sizeof(HeldObject) + sizeof(PyObject *),
};
Other_dealloc(OtherObject *self)
{
    CPyDef_Other_clear((PyObject *)self);
}
static PyTypeObject CPyType_Other_template_ = {
    .tp_basicsize = sizeof(OtherObject),
};
"""


def test_weak_references_are_told_and_not_owned() -> None:
    changed = with_weak_references(SOURCE)
    assert "sizeof(PyObject *) + sizeof(HeldObject))))" not in changed
    assert "Py_VISIT(*((PyObject **)((char *)self + sizeof(HeldObject))));" in changed
    told = "    PyObject_ClearWeakRefs((PyObject *)self);\n"
    assert changed.count(told) == 1
    assert f"{told}    CPyDef_Held_clear((PyObject *)self);" in changed
