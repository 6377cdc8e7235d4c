/* Definition of the module, and helper functions for arguments. */
#include "kernels.h"

int get_numbers(PyObject *const *arguments, int64_t *numbers, int count)
{
    for (int i = 0; i < count; i++) {
        numbers[i] = PyLong_AsLongLong(arguments[i]);
        if (numbers[i] == -1 && PyErr_Occurred())
            return 0;
    }
    return 1;
}

int check_arguments(Py_ssize_t given, Py_ssize_t expected)
{
    if (given != expected)
        PyErr_Format(PyExc_TypeError, "%zd arguments, expected %zd", given, expected);
    return given == expected;
}

int check_row_type(PyObject *type)
{
    int is_tuple = PyType_Check(type) && type != (PyObject *)&PyTuple_Type &&
                   PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type);
    if (!is_tuple)
        PyErr_SetString(PyExc_TypeError, "the type of rows must be a subclass of tuple");
    return is_tuple;
}

/* tuple.__new__, because only Python itself initializes all parts of a tuple: since 3.14, tuples cache their hash. */
static newfunc tuple_new;

PyObject *new_tuple(PyObject *type, PyObject *arguments)
{
    return tuple_new((PyTypeObject *)type, arguments, NULL);
}

PyObject *new_named(PyObject *type, PyObject *fields)
{
    PyObject *arguments = fields == NULL ? NULL : PyTuple_Pack(1, fields);
    PyObject *named = arguments == NULL ? NULL : new_tuple(type, arguments);
    Py_XDECREF(arguments);
    Py_XDECREF(fields);
    return named;
}

int add(PyObject *list, PyObject *item)
{
    int added = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return added;
}

#define METHOD(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef kernels[] = {
    METHOD(place_batches),  METHOD(index_batches), METHOD(scan_batches),  METHOD(match_requests),
    METHOD(fill_responses), METHOD(read_rows),     METHOD(read_batches),  METHOD(check_records),
    METHOD(encode_records), METHOD(decode_columns),
    {NULL, NULL, 0, NULL},
};

static int set_up(PyObject *module)
{
    tuple_new = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    if (tuple_new == NULL)
        return -1;
    return PyModule_AddIntConstant(module, "HAS_CRC", set_up_crc32c());
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, set_up}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_kernels", .m_methods = kernels, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernels(void)
{
    return PyModuleDef_Init(&definition);
}
