/* The type of a linked kernel: a call takes the first version that its arguments fit.

   shm/warm/link.py writes the versions behind this file, and compiles both into one library with the
   kernels' machine code. A version returns NULL without an error if the arguments do not fit it; if
   none fits, Numba compiles another: `compile()` returns its dispatcher.

   Sources: CPython's "Vectorcall protocol", NumPy's "Array API", Numba's calling convention
   (numba/core/callconv.py, CPUCallConv) and its struct of an array (numba/_arraystruct.h). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#define DIMENSIONS_MAX 2

typedef PyObject *Version(PyObject *const *arguments);

typedef struct {
    const char *name; /* module:qualified name */
    Py_ssize_t arguments;
    Version *const *versions; /* NULL ends them. */
} Entry;

typedef struct {
    int64_t items, item_bytes;
    void *data;
    int64_t shape[DIMENSIONS_MAX], strides[DIMENSIONS_MAX];
} Array;

/* A kernel counts no references, so its array has no owner. */
#define ARRAY_1(a) NULL, NULL, a.items, a.item_bytes, a.data, a.shape[0], a.strides[0]
#define ARRAY_2(a) \
    NULL, NULL, a.items, a.item_bytes, a.data, a.shape[0], a.shape[1], a.strides[0], a.strides[1]

/* Whether it is a C-contiguous array of this kind: `kind` and `item_bytes` are NumPy's. */
static inline int fits_array(PyObject *object, int dimensions, char kind, int item_bytes, int writes,
                             Array *array)
{
    if (!PyArray_Check(object))
        return 0;
    PyArrayObject *given = (PyArrayObject *)object;
    int flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (writes ? NPY_ARRAY_WRITEABLE : 0);
    if (PyArray_NDIM(given) != dimensions || PyArray_DESCR(given)->kind != kind
        || PyArray_ITEMSIZE(given) != item_bytes || !PyArray_CHKFLAGS(given, flags)
        || !PyArray_ISNOTSWAPPED(given))
        return 0;
    array->items = PyArray_SIZE(given);
    array->item_bytes = item_bytes;
    array->data = PyArray_DATA(given);
    for (int i = 0; i < dimensions; i++) {
        array->shape[i] = PyArray_DIM(given, i);
        array->strides[i] = PyArray_STRIDE(given, i);
    }
    return 1;
}

static inline int fits_tuple(PyObject *object, Py_ssize_t length)
{
    return PyTuple_Check(object) && PyTuple_GET_SIZE(object) == length;
}

/* Whether it is an integer of Python's or NumPy's that an int64 holds. */
static inline int fits_integer(PyObject *object, int64_t *value)
{
    int overflow = 0;
    if (PyLong_Check(object)) {
        *value = PyLong_AsLongLongAndOverflow(object, &overflow);
        return !overflow;
    }
    if (!PyArray_IsScalar(object, Integer))
        return 0;
    PyObject *number = PyNumber_Index(object);
    if (!number) {
        PyErr_Clear();
        return 0;
    }
    *value = PyLong_AsLongLongAndOverflow(number, &overflow);
    Py_DECREF(number);
    return !overflow;
}

static inline int fits_bool(PyObject *object, uint8_t *value)
{
    if (!PyBool_Check(object) && !PyArray_IsScalar(object, Bool))
        return 0;
    *value = PyObject_IsTrue(object) == 1;
    return 1;
}

/* A kernel raises nothing: this is a fault of its code. */
static PyObject *failed(const char *name, int status)
{
    return PyErr_Format(PyExc_SystemError, "the kernel %s ended with status %d", name, status);
}

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    const Entry *entry; /* NULL: only other kernels call it. */
    PyObject *compile, *attributes;
} Kernel;

static PyObject *kernel_call(PyObject *self, PyObject *const *arguments, size_t count, PyObject *names)
{
    Kernel *kernel = (Kernel *)self;
    const Entry *entry = kernel->entry;
    if (entry && !names && PyVectorcall_NARGS(count) == entry->arguments)
        for (Version *const *each = entry->versions; *each; each++) {
            PyObject *result = (*each)(arguments);
            if (result || PyErr_Occurred())
                return result;
        }
    PyObject *compiled = PyObject_CallNoArgs(kernel->compile);
    if (!compiled)
        return NULL;
    PyObject *result = PyObject_Vectorcall(compiled, arguments, count, names);
    Py_DECREF(compiled);
    return result;
}

/* What Numba asks of a global that it meets in a kernel. */
static PyObject *kernel_type(PyObject *self, void *closure)
{
    PyObject *compiled = PyObject_CallNoArgs(((Kernel *)self)->compile);
    if (!compiled)
        return NULL;
    PyObject *type = PyObject_GetAttrString(compiled, "_numba_type_");
    Py_DECREF(compiled);
    return type;
}

static void kernel_dealloc(PyObject *self)
{
    Py_XDECREF(((Kernel *)self)->compile);
    Py_XDECREF(((Kernel *)self)->attributes);
    PyObject_Free(self);
}

static PyGetSetDef kernel_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"_numba_type_", kernel_type, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject kernel_class = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "shm.kernels.Kernel",
    .tp_basicsize = sizeof(Kernel),
    .tp_dealloc = kernel_dealloc,
    .tp_vectorcall_offset = offsetof(Kernel, call),
    .tp_call = PyVectorcall_Call,
    .tp_getattro = PyObject_GenericGetAttr,
    .tp_setattro = PyObject_GenericSetAttr,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_getset = kernel_getset,
    .tp_dictoffset = offsetof(Kernel, attributes),
};

static const Entry entries[];

/* kernel(name, compile) -> Kernel */
static PyObject *new_kernel(PyObject *module, PyObject *arguments)
{
    const char *name;
    PyObject *compile;
    if (!PyArg_ParseTuple(arguments, "sO", &name, &compile))
        return NULL;
    Kernel *made = PyObject_New(Kernel, &kernel_class);
    if (!made)
        return NULL;
    made->call = kernel_call;
    made->entry = NULL;
    made->compile = Py_NewRef(compile);
    made->attributes = NULL;
    for (const Entry *each = entries; each->name; each++)
        if (strcmp(each->name, name) == 0)
            made->entry = each;
    return (PyObject *)made;
}

static PyMethodDef functions[] = {
    {"kernel", new_kernel, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "kernels", .m_size = -1, .m_methods = functions,
};

PyMODINIT_FUNC PyInit_kernels(void)
{
    import_array();
    if (PyType_Ready(&kernel_class) < 0)
        return NULL;
    return PyModule_Create(&definition);
}
