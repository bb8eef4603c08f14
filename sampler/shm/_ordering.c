/* Memory fences: in which order other processes see what this one writes.
 *
 * The words between them are ordinary memory of aligned 8-byte words, written and read by numpy and
 * by memoryviews in other compilation units, so neither compiler nor processor moves such an access
 * across the call of a fence in the directions that the fence forbids.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdatomic.h>

static PyObject *release(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    atomic_thread_fence(memory_order_release);
    Py_RETURN_NONE;
}

static PyObject *acquire(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    atomic_thread_fence(memory_order_acquire);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"release", release, METH_NOARGS,
     "What was read and written before comes before whatever is written after."},
    {"acquire", acquire, METH_NOARGS,
     "What was read before comes before whatever is read and written after."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sampler.shm._ordering",
    .m_doc = "Memory fences.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__ordering(void)
{
    return PyModule_Create(&module);
}
