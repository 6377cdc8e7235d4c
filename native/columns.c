/* Columns: decodes the records of batches into the buffers of Arrow columns. */
#include "fields.h"

enum { BASE_OFFSET, ATTRIBUTE_BITS, LAST_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, RECORD_COUNT, NUMBERS };
enum { ENDS_MAX = INT32_MAX };

/* A binary column: values one after the other, their ends, and a bit for each that is not null. */
typedef struct {
    uint8_t *data, *validity;
    int32_t *ends; /* of the next row */
    int64_t size, null_count;
} Column;

static inline void append(Column *column, int64_t row, Span span)
{
    if (span.size > 0) {
        memcpy(column->data + column->size, span.at, (size_t)span.size);
        column->size += span.size;
    } else if (span.size < 0) {
        column->validity[row >> 3] &= (uint8_t)~(1 << (row & 7));
        column->null_count++;
    }
    *column->ends++ = (int32_t)column->size;
}

typedef struct {
    int64_t row, row_count, size_left, with_headers_count;
    int64_t *offsets, *timestamps;
    Column keys, values;
} Columns;

/* Append all records of a section; false if they need the Python code. Does not use Python's API. */
static int append_records(Columns *columns, const int64_t *h, Bytes at, Bytes end)
{
    int64_t previous = -1, left = h[RECORD_COUNT];
    if (left < 0 || left > columns->row_count - columns->row || end - at > columns->size_left)
        return 0;
    columns->size_left -= end - at;
    for (; left > 0; left--) {
        Fields fields;
        int64_t offset, timestamp;
        if (!read_fields(&at, end, previous, h[LAST_DELTA], &fields) ||
            __builtin_add_overflow(h[BASE_OFFSET], fields.offset_delta, &offset) ||
            __builtin_add_overflow(h[BASE_TIMESTAMP], fields.timestamp_delta, &timestamp))
            return 0;
        previous = fields.offset_delta;
        columns->offsets[columns->row] = offset;
        columns->timestamps[columns->row] = h[ATTRIBUTE_BITS] & LOG_APPEND_TIME ? h[MAX_TIMESTAMP] : timestamp;
        append(&columns->keys, columns->row, fields.key);
        append(&columns->values, columns->row, fields.value);
        columns->with_headers_count += fields.header_count > 0;
        columns->row++;
    }
    return at == end;
}

/* Get the numbers of the header of a section, a tuple (header, records), and return its records; NULL with an error. */
static PyObject *get_section(PyObject *sections, Py_ssize_t index, int64_t *numbers)
{
    static const Py_ssize_t fields[NUMBERS] = {0, 5, 6, 7, 8, 12};
    PyObject *section = PyList_GetItem(sections, index);
    PyObject *header = section == NULL ? NULL : PyTuple_GetItem(section, 0);
    for (int i = 0; i < NUMBERS; i++) {
        PyObject *number = header == NULL ? NULL : PyTuple_GetItem(header, fields[i]);
        if (number == NULL || !get_numbers(&number, &numbers[i], 1))
            return NULL;
    }
    return PyTuple_GetItem(section, 1);
}

static uint8_t *take(uint8_t **at, int64_t size)
{
    uint8_t *taken = *at;
    *at += size;
    return taken;
}

/* Place the columns in a new bytearray, whose reference is returned; NULL with an error. */
static PyObject *place_columns(Columns *columns, int64_t count, int64_t size)
{
    int64_t bits_size = (count + 7) / 8, total = 24 * count + 8 + 2 * (bits_size + size);
    PyObject *buffer = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)total);
    if (buffer == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyByteArray_AsString(buffer);
    *columns = (Columns){.row_count = count, .size_left = size};
    columns->offsets = (int64_t *)take(&at, 8 * count);
    columns->timestamps = (int64_t *)take(&at, 8 * count);
    Column *both[] = {&columns->keys, &columns->values};
    for (int i = 0; i < 2; i++) {
        both[i]->ends = (int32_t *)take(&at, 4 * (count + 1));
        *both[i]->ends++ = 0;
    }
    for (int i = 0; i < 2; i++)
        both[i]->validity = memset(take(&at, bits_size), 0xFF, (size_t)bits_size);
    for (int i = 0; i < 2; i++)
        both[i]->data = take(&at, size);
    return buffer;
}

KERNEL(decode_columns)
{
    Columns columns;
    int64_t numbers[NUMBERS], count = 0, size = 0;
    if (!check_arguments(given, 1))
        return NULL;
    PyObject *sections = arguments[0];
    Py_ssize_t section_count = PyList_Size(sections);
    for (Py_ssize_t i = 0; i < section_count; i++) {
        PyObject *records = get_section(sections, i, numbers);
        Py_ssize_t length = records == NULL ? -1 : PyObject_Size(records);
        if (length < 0)
            return NULL;
        if (numbers[RECORD_COUNT] < 0 || numbers[RECORD_COUNT] > length / RECORD_SIZE_MIN ||
            (size += length) > ENDS_MAX)
            Py_RETURN_NONE;
        count += numbers[RECORD_COUNT];
    }
    PyObject *buffer = section_count < 0 ? NULL : place_columns(&columns, count, size);
    int is_valid = buffer != NULL;
    for (Py_ssize_t i = 0; is_valid && i < section_count; i++) {
        Py_buffer view;
        PyObject *records = get_section(sections, i, numbers);
        if (records == NULL || PyObject_GetBuffer(records, &view, PyBUF_SIMPLE) < 0)
            Py_CLEAR(buffer);
        is_valid = buffer != NULL && append_records(&columns, numbers, view.buf, (Bytes)view.buf + view.len);
        if (buffer != NULL)
            PyBuffer_Release(&view);
    }
    if (buffer == NULL)
        return NULL;
    if (!is_valid || columns.row != count) {
        Py_DECREF(buffer);
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(NLLLLLLL)", buffer, (long long)count, (long long)size, (long long)columns.keys.size,
                         (long long)columns.keys.null_count, (long long)columns.values.size,
                         (long long)columns.values.null_count, (long long)columns.with_headers_count);
}
