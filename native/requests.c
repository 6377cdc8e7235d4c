/* Produce requests that repeat the request before them, and their responses. */
#include "kernels.h"

enum { LENGTH_SIZE = 4, ID_START = 4, ID_END = 8, PLACES_MAX = 5 };

/* The unsigned varint at `*at`, or -1 if it is incomplete or has more than five bytes. */
static int64_t read_uvarint(Bytes *at, Bytes end)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 35 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return (int64_t)value;
    }
    return -1;
}

KERNEL(match_requests)
{
    int64_t limits[8]; /* see kernels.py */
    if (!check_arguments(given, 10) || !get_numbers(arguments + 2, limits, 8))
        return NULL;
    PyObject *buffer = arguments[0];
    Py_buffer view, tail;
    if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(arguments[1], &tail, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    const int64_t first = limits[0], size = limits[2] < view.len ? limits[2] : view.len, head_size = limits[4];
    int64_t position = limits[1], codecs = 0;
    PyObject *ids = PyList_New(0), *records = PyList_New(0);
    int failed = ids == NULL || records == NULL;
    int is_possible = first >= 0 && position >= 0 && head_size > ID_END && head_size <= size - first;
    Bytes start = view.buf, head = start + first;
    for (int64_t count = 0; is_possible && !failed && count < limits[7] && size - position > LENGTH_SIZE; count++) {
        Bytes at = start + position + LENGTH_SIZE;
        int64_t length = (int32_t)load32(start + position);
        if (length < head_size || length > limits[3] || length > size - position - LENGTH_SIZE)
            break;
        Bytes end = at + length;
        if (memcmp(at, head, ID_START) || memcmp(at + ID_END, head + ID_END, (size_t)(head_size - ID_END)))
            break;
        int64_t id = (int32_t)load32(at + ID_START), bytes;
        at += head_size;
        if (limits[5])
            bytes = read_uvarint(&at, end) - 1;
        else if (end - at < 4)
            break;
        else
            bytes = (int32_t)load32(at), at += 4;
        if (bytes < HEADER_SIZE || bytes != end - at - tail.len || memcmp(at + bytes, tail.buf, (size_t)tail.len))
            break;
        uint8_t attributes = at[ATTRIBUTES];
        if (attributes & limits[6])
            break;
        Py_ssize_t from = at - start;
        failed = !add(ids, PyLong_FromLongLong(id)) ||
                 !add(records, PySequence_GetSlice(buffer, from, (Py_ssize_t)(from + bytes)));
        codecs |= attributes & CODEC_MASK;
        position += LENGTH_SIZE + length;
    }
    PyBuffer_Release(&tail);
    PyBuffer_Release(&view);
    PyObject *matched = failed ? NULL : Py_BuildValue("(OOLL)", ids, records, (long long)codecs, (long long)position);
    Py_XDECREF(ids);
    Py_XDECREF(records);
    return matched;
}

/* A field of a named tuple; false with an error set if it is not a number. */
static int get_field(PyObject *row, Py_ssize_t index, int64_t *number)
{
    PyObject *field = PyTuple_GetItem(row, index); /* borrowed; an error if the row is not a tuple */
    return field != NULL && get_numbers(&field, number, 1);
}

KERNEL(fill_responses)
{
    int64_t partition_and_start[2];
    if (!check_arguments(given, 6) || !get_numbers(arguments + 4, partition_and_start, 2))
        return NULL;
    Py_ssize_t places_count = PyTuple_Size(arguments[1]), count = PySequence_Size(arguments[2]);
    if (places_count < 0 || count < 0)
        return NULL;
    Py_buffer template;
    if (PyObject_GetBuffer(arguments[0], &template, PyBUF_SIMPLE) < 0)
        return NULL;
    int64_t places[PLACES_MAX];
    int failed = 0;
    for (Py_ssize_t i = 0; i < places_count && i < PLACES_MAX && !failed; i++) {
        failed = !get_field(arguments[1], i, &places[i]);
        if (!failed && (places[i] < 0 || places[i] > template.len - (i < 2 ? 4 : 8))) {
            PyErr_SetString(PyExc_ValueError, "a number is outside of the template");
            failed = 1;
        }
    }
    int is_possible = !failed && places_count <= PLACES_MAX && (!template.len || count <= INT32_MAX / template.len);
    PyObject *frames = is_possible ? PyBytes_FromStringAndSize(NULL, count * template.len) : NULL;
    if (frames == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "too many responses, or more than five numbers");
    uint8_t *at = frames == NULL ? NULL : (uint8_t *)PyBytes_AsString(frames);
    failed = frames == NULL;
    for (Py_ssize_t i = 0; i < count && !failed; i++, at += template.len) {
        PyObject *id = PySequence_GetItem(arguments[2], i), *result = PySequence_GetItem(arguments[3], i);
        int64_t numbers[PLACES_MAX] = {0, partition_and_start[0], 0, 0, partition_and_start[1]};
        failed = id == NULL || result == NULL || !get_numbers(&id, numbers, 1) || !get_field(result, 0, &numbers[2]) ||
                 !get_field(result, 2, &numbers[3]);
        Py_XDECREF(id);
        Py_XDECREF(result);
        if (failed)
            break;
        memcpy(at, template.buf, (size_t)template.len);
        for (Py_ssize_t place = 0; place < places_count; place++)
            if (place < 2)
                store32(at + places[place], (uint32_t)numbers[place]);
            else
                store64(at + places[place], (uint64_t)numbers[place]);
    }
    PyBuffer_Release(&template);
    if (failed)
        Py_CLEAR(frames);
    return frames;
}
