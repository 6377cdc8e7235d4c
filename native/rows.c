/* Records as rows: reads the records of a section, or of consecutive fetched batches. */
#include "fields.h"

static PyObject *new_bytes(Span span)
{
    if (span.size >= 0)
        return PyBytes_FromStringAndSize((const char *)span.at, (Py_ssize_t)span.size);
    Py_INCREF(Py_None);
    return Py_None;
}

/* Return the headers of a record; NULL without an error if they are malformed. */
static PyObject *new_headers(const Fields *fields)
{
    Py_ssize_t count = (Py_ssize_t)fields->header_count;
    PyObject *headers = PyTuple_New(count);
    Bytes at = fields->headers;
    for (Py_ssize_t i = 0; headers != NULL && i < count; i++) {
        Span name, value;
        PyObject *pair = NULL;
        if (read_header(&at, fields->end, &name, &value)) {
            PyObject *text = PyUnicode_DecodeUTF8((const char *)name.at, (Py_ssize_t)name.size, "surrogateescape");
            PyObject *data = text == NULL ? NULL : new_bytes(value);
            pair = data == NULL ? NULL : PyTuple_Pack(2, text, data);
            Py_XDECREF(text);
            Py_XDECREF(data);
        }
        if (pair == NULL || PyTuple_SetItem(headers, i, pair) < 0)
            Py_CLEAR(headers);
    }
    if (headers != NULL && at != fields->end)
        Py_CLEAR(headers);
    return headers;
}

enum { OFFSET, TIMESTAMP, KEY, VALUE, HEADERS, VARYING }; /* the fields of a row that differ between records */

/* Makes rows by copying `fields`, which has the fields of the last row and is owned only by `arguments`. */
typedef struct {
    PyObject *type, *arguments, *fields;
    Bytes places;
    int64_t timestamp;
    int has_timestamp, has_key, has_headers; /* whether `fields` has `timestamp`, a key, headers */
} RowMaker;

static int set_field(RowMaker *maker, Py_ssize_t place, PyObject *value)
{
    return value != NULL && PyTuple_SetItem(maker->fields, place, value) == 0;
}

/* Get the shape of rows: `places` are the indexes of the varying fields; the others have the values of the tuple
 * `constants`. On success, the caller must drop the reference `maker->arguments`. */
static int get_row_maker(PyObject *const *shape, RowMaker *maker)
{
    PyObject *constants = shape[1];
    *maker = (RowMaker){.type = shape[0]};
    if (!check_row_type(maker->type))
        return 0;
    Py_ssize_t width = PyTuple_Size(constants), places = PyBytes_Size(shape[2]);
    if (PyErr_Occurred())
        return 0;
    maker->places = (Bytes)PyBytes_AsString(shape[2]);
    uint64_t is_varying = 0; /* a bit for each index in `places` */
    for (int i = 0; i < VARYING && places == VARYING && maker->places[i] < 64; i++)
        is_varying |= (uint64_t)1 << maker->places[i];
    if (width > 64 || __builtin_popcountll(is_varying) != VARYING || (width < 64 && is_varying >> width)) {
        PyErr_SetString(PyExc_ValueError, "invalid places");
        return 0;
    }
    maker->fields = PyTuple_New(width);
    maker->arguments = maker->fields == NULL ? NULL : PyTuple_New(1);
    if (maker->arguments == NULL || PyTuple_SetItem(maker->arguments, 0, maker->fields) < 0) {
        Py_CLEAR(maker->arguments);
        return 0;
    }
    /* A tuple can be changed only while it has one reference: the garbage collector's functions must not find it. */
    PyObject_GC_UnTrack(maker->fields);
    PyObject_GC_UnTrack(maker->arguments);
    int failed = 0;
    for (Py_ssize_t i = 0; i < width; i++) {
        PyObject *constant = is_varying >> i & 1 ? Py_None : PyTuple_GetItem(constants, i);
        Py_INCREF(constant);
        failed |= !set_field(maker, i, constant);
    }
    if (failed || !set_field(maker, maker->places[HEADERS], PyTuple_New(0)))
        Py_CLEAR(maker->arguments);
    return maker->arguments != NULL;
}

/* Return a row; NULL without an error if the headers of the record are malformed. */
static PyObject *new_row(RowMaker *maker, int64_t offset, int64_t timestamp, const Fields *fields)
{
    Bytes places = maker->places;
    int has_key = fields->key.size >= 0, has_headers = fields->header_count != 0;
    int is_set = set_field(maker, places[OFFSET], PyLong_FromLongLong(offset)) &&
                 set_field(maker, places[VALUE], new_bytes(fields->value));
    if (!maker->has_timestamp || timestamp != maker->timestamp)
        is_set = is_set && set_field(maker, places[TIMESTAMP], PyLong_FromLongLong(timestamp));
    if (has_key || maker->has_key)
        is_set = is_set && set_field(maker, places[KEY], new_bytes(fields->key));
    if (has_headers || maker->has_headers)
        is_set = is_set && set_field(maker, places[HEADERS], new_headers(fields));
    maker->timestamp = timestamp, maker->has_timestamp = 1;
    maker->has_key = has_key, maker->has_headers = has_headers;
    return is_set ? new_tuple(maker->type, maker->arguments) : NULL;
}

typedef struct {
    Bytes at, end;
    int64_t base_offset, base_timestamp, last_offset_delta, record_count, has_append_time, append_time;
} Section;

/* Append the records from offset `first` on to a list; false if one is malformed, or with an error set. */
static int read_section(RowMaker *maker, const Section *section, int64_t first, PyObject *rows)
{
    Bytes at = section->at;
    int64_t previous = -1;
    if (section->record_count < 0 || section->record_count > (section->end - at) / RECORD_SIZE_MIN)
        return 0;
    for (int64_t i = 0; i < section->record_count; i++) {
        Fields fields;
        int64_t offset, timestamp = section->append_time;
        if (!read_fields(&at, section->end, previous, section->last_offset_delta, &fields) ||
            __builtin_add_overflow(section->base_offset, fields.offset_delta, &offset) ||
            (!section->has_append_time &&
             __builtin_add_overflow(section->base_timestamp, fields.timestamp_delta, &timestamp)))
            return 0;
        previous = fields.offset_delta;
        PyObject *row = new_row(maker, offset, timestamp, &fields);
        if (row != NULL && offset < first)
            Py_DECREF(row);
        else if (!add(rows, row))
            return 0;
    }
    return at == section->end;
}

KERNEL(read_rows)
{
    int64_t h[6]; /* base offset, base timestamp, last offset delta, number of records, 1 and append time, or 0 */
    RowMaker maker;
    if (!check_arguments(given, 10) || !get_numbers(arguments + 4, h, 6) || !get_row_maker(arguments, &maker))
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(arguments[3], &view, PyBUF_SIMPLE) < 0) {
        Py_DECREF(maker.arguments);
        return NULL;
    }
    Bytes start = view.buf;
    Section section = {start, start + view.len, h[0], h[1], h[2], h[3], h[4], h[5]};
    PyObject *rows = PyList_New(0);
    if (rows != NULL && !read_section(&maker, &section, INT64_MIN, rows))
        Py_CLEAR(rows);
    PyBuffer_Release(&view);
    Py_DECREF(maker.arguments);
    if (rows != NULL || PyErr_Occurred())
        return rows;
    Py_RETURN_NONE;
}

/* Append the records of one batch; return its size, or 0 if it is not plain, not valid or has another epoch. */
static int64_t read_batch(RowMaker *maker, Bytes at, Py_ssize_t left, const int64_t *limits, PyObject *rows,
                          int64_t *next_offset)
{
    if (left < HEADER_SIZE)
        return 0;
    Header h = parse_header(at);
    int64_t size = (int64_t)h.length + LENGTH_END;
    Py_ssize_t before = PyList_Size(rows);
    if (h.magic != 2 || size < HEADER_SIZE || size > left || h.attributes != limits[1] || h.leader_epoch != limits[2] ||
        __builtin_add_overflow(h.base_offset, (int64_t)h.last_offset_delta + 1, next_offset) ||
        crc32c(at + CRC_START, at + size) != h.crc)
        return 0;
    Section section = {at + HEADER_SIZE, at + size, h.base_offset, h.base_timestamp, h.last_offset_delta,
                       h.record_count, h.attributes & LOG_APPEND_TIME, h.max_timestamp};
    if (read_section(maker, &section, limits[3], rows))
        return size;
    if (!PyErr_Occurred())
        PyList_SetSlice(rows, before, PyList_Size(rows), NULL);
    return 0;
}

KERNEL(read_batches)
{
    int64_t limits[6]; /* position, attributes, leader epoch, first offset, numbers of rows and bytes to read */
    RowMaker maker;
    if (!check_arguments(given, 10) || !get_numbers(arguments + 4, limits, 6) || !get_row_maker(arguments, &maker))
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(arguments[3], &view, PyBUF_SIMPLE) < 0) {
        Py_DECREF(maker.arguments);
        return NULL;
    }
    PyObject *rows = PyList_New(0);
    int64_t position = limits[0] < 0 ? view.len : limits[0], record_bytes = 0, next_offset = 0, next, size = 1;
    while (rows != NULL && size > 0 && position < view.len && PyList_Size(rows) < limits[4] &&
           (record_bytes < limits[5] || PyList_Size(rows) == 0)) {
        if (PyList_Size(rows) == 0)
            record_bytes = 0;
        size = read_batch(&maker, (Bytes)view.buf + position, view.len - position, limits, rows, &next);
        if (size > 0)
            position += size, record_bytes += size - HEADER_SIZE, next_offset = next;
    }
    PyBuffer_Release(&view);
    Py_DECREF(maker.arguments);
    PyObject *read = NULL;
    if (rows != NULL && !PyErr_Occurred())
        read = Py_BuildValue("(OLLL)", rows, (long long)record_bytes, (long long)position, (long long)next_offset);
    Py_XDECREF(rows);
    return read;
}
