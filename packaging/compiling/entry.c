/* Makes a compiled module: all are in one library, whose entry points Python itself would look for in files of
   their own. pykraft/compiled.py calls this; it is linked into that library. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *
init(PyObject *self, PyObject *entry)
{
    if (!PyCapsule_CheckExact(entry)) {
        PyErr_SetString(PyExc_TypeError, "an entry point is a capsule");
        return NULL;
    }
    PyObject *(*make)(void) = PyCapsule_GetPointer(entry, PyCapsule_GetName(entry));
    return make == NULL ? NULL : make();
}

static PyMethodDef methods[] = {
    {"init", init, METH_O, "The module with this entry point, executed."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_init_compiled",
    .m_doc = "See pykraft.compiled.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__init_compiled(void)
{
    return PyModuleDef_Init(&definition);
}
