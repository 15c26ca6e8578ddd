"""What is changed in the C sources that the compiler writes."""

import pytest
from compiling.c_sources import with_own_errors, with_own_errors_declared, with_weak_references
from compiling.sources import UncompilableError

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


HEADER = """
typedef struct {
    CPyVTableItem *vtable;
    uint32_t mypyc_running;
} wait_genObject;

typedef struct {
    PyObject *a;
} HeldObject;
"""
GENERATOR = """
wait_gen_traverse(wait_genObject *self, visitproc visit, void *arg)
{
    return 0;
}
static int32_t CPyDef_wait_gen_clear(PyObject *cpy_r_self)
{
    wait_genObject *self = (wait_genObject *)cpy_r_self;
    return 0;
}
static int32_t CPyDef_wait_gen_clear_on_completion(PyObject *cpy_r_self)
{
    wait_genObject *self = (wait_genObject *)cpy_r_self;
    return 0;
}
wait_gen_dealloc(wait_genObject *self)
{
    PyObject_GC_UnTrack(self);
    if (wait_gen_free_instance == NULL) {
        wait_gen_free_instance = self;
        return;
    }
}
"""


def test_generators_own_the_errors_that_they_handle_and_nothing_else_does() -> None:
    declared, generators = with_own_errors_declared(HEADER)
    assert "    GeneratorRun mypyc_running;\n} wait_genObject;" in declared
    assert generators == {"wait_genObject"}
    changed = with_own_errors(GENERATOR, generators)
    assert changed.count("Py_VISIT(self->mypyc_running.handled.exc_value);") == 1
    assert changed.count("Py_CLEAR(self->mypyc_running.handled.exc_value);") == 3
    assert "_instance = self;\n    Py_CLEAR(self->mypyc_running.handled.exc_value);\n" in changed
    others = GENERATOR.replace("wait_genObject", "HeldObject")
    assert with_own_errors(others, generators) == others


def test_generators_that_another_mypyc_writes_end_the_build() -> None:
    with pytest.raises(UncompilableError, match="this version of mypyc"):
        with_own_errors_declared(HEADER.replace("mypyc_running", "is_running"))
