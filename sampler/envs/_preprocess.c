/* Two raw emulator screens to one frame: palette look-up, maximum, area resize.
 *
 * The arithmetic is that of OpenCV's INTER_AREA for uint8 when shrinking: float32 weights, first
 * the horizontal sum over a source row, then the vertical sum over rows, each in source order,
 * then rounding half to even. Frames are equal to OpenCV's, pixel for pixel.
 *
 * Most of a screen does not change from step to step. The kernel keeps every stage's last result,
 * by rows, and computes a row again only where its source changed.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the horizontal pass reads its taps as little-endian words"
#endif

/* Wheels are built for the plain architecture; where the loader can choose, AVX2 is used. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__)
#define VECTORISED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORISED
#endif

enum { TAPS = 3, WORD = 8, UNKNOWN = 0x100, EARLIER = 0, LAST = 1 };

/* One weighted source pixel or row of an output pixel or row. */
typedef struct {
    int source;
    float weight;
} Tap;

typedef struct {
    PyObject_HEAD
    int height, width;         /* of a screen */
    int out_height, out_width; /* of a frame */
    uint16_t palette[256];     /* gray of an index, or UNKNOWN */
    int seen[2];               /* whether raw and gray hold a whole screen */
    uint8_t *raw[2];           /* [height][width], the screens as taken */
    uint8_t *gray[2];          /* [height][width] */
    uint8_t *stale;            /* [height], rows whose gray changed since they were pooled */
    uint8_t *changed;          /* [height], rows whose sums changed since the frame was made */
    uint8_t *pooled;           /* [height][width] + 3, maximum of the two */
    float *sums;               /* [height][out_width], pooled rows after the horizontal pass */
    uint8_t *frame;            /* [out_height][out_width] */
    int32_t *columns;          /* [out_width], first source column */
    float *weights;            /* [TAPS][out_width] */
    int *rows;                 /* [out_height + 1], index of each output row's first tap */
    Tap *row_taps;
    uint32_t *words;           /* [out_width], scratch of the horizontal pass */
} Kernel;

/* Copy a row of indices from `screen` to `raw` and its grays to `gray`, by words, and only where
 * the words differ unless `all`. Returns nonzero if an index is not known yet. */
static int look_up(const uint16_t *palette, const uint8_t *screen, uint8_t *raw, uint8_t *gray,
                   int width, int all)
{
    unsigned met = 0;
    for (int x = 0; x < width; x += WORD) {
        if (!all && memcmp(raw + x, screen + x, WORD) == 0)
            continue;
        memcpy(raw + x, screen + x, WORD);
        for (int i = x; i < x + WORD; i++) {
            unsigned value = palette[screen[i]];
            met |= value;
            gray[i] = (uint8_t)value;
        }
    }
    return met & UNKNOWN;
}

/* The larger of `a` and `b` into `pooled`; returns nonzero if that changes it. */
VECTORISED
static int pool(const uint8_t *a, const uint8_t *b, uint8_t *pooled, int width)
{
    unsigned difference = 0;
    for (int x = 0; x < width; x++) {
        uint8_t larger = a[x] > b[x] ? a[x] : b[x];
        difference |= larger ^ pooled[x];
        pooled[x] = larger;
    }
    return difference;
}

/* Horizontal pass: sums[x] = the taps of column x. Reads up to 3 bytes past the row. */
VECTORISED
static void shrink_row(const uint8_t *row, const int32_t *columns, const float *weights,
                       uint32_t *restrict words, float *restrict sums, int width)
{
    const float *w0 = weights, *w1 = weights + width, *w2 = weights + 2 * width;
    for (int x = 0; x < width; x++)
        memcpy(&words[x], row + columns[x], sizeof *words);
    for (int x = 0; x < width; x++) {
        float sum = (float)(int)(words[x] & 255) * w0[x];
        sum += (float)(int)(words[x] >> 8 & 255) * w1[x];
        sum += (float)(int)(words[x] >> 16 & 255) * w2[x];
        sums[x] = sum;
    }
}

/* Vertical pass of one output row. */
VECTORISED
static void shrink_column(const float *sums, const Tap *taps, int count,
                          float *restrict total, uint8_t *restrict out, int width)
{
    const float *source = sums + (size_t)taps[0].source * width;
    for (int x = 0; x < width; x++)
        total[x] = source[x] * taps[0].weight;
    for (int k = 1; k < count; k++) {
        source = sums + (size_t)taps[k].source * width;
        for (int x = 0; x < width; x++)
            total[x] += source[x] * taps[k].weight;
    }
    for (int x = 0; x < width; x++) {
        /* Adding 1.5 * 2^23 leaves the value, rounded half to even, in the lowest bits. */
        float shifted = total[x] + 12582912.0f;
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        out[x] = (uint8_t)bits;
    }
}

/* The taps of each of `out` output positions over `in` inputs; returns their number.
 * `first[i]` is the index of position i's first tap, `first[out]` their number. */
static int area_taps(int in, int out, int *first, Tap *taps)
{
    double scale = 1.0 / ((double)out / in);
    int count = 0;
    for (int i = 0; i < out; i++) {
        double begin = i * scale, end = begin + scale;
        double cell = fmin(scale, in - begin);
        int whole_end = (int)fmin(floor(end), in - 1);
        int whole_begin = (int)fmin(ceil(begin), whole_end);
        first[i] = count;
        if (whole_begin - begin > 1e-3)
            taps[count++] = (Tap){whole_begin - 1, (float)((whole_begin - begin) / cell)};
        for (int j = whole_begin; j < whole_end; j++)
            taps[count++] = (Tap){j, (float)(1.0 / cell)};
        if (end - whole_end > 1e-3)
            taps[count++] = (Tap){whole_end, (float)(fmin(fmin(end - whole_end, 1.0), cell) / cell)};
    }
    first[out] = count;
    return count;
}

/* Take a screen into `slot`; returns 0 if it shows an index that is not known yet. */
static int take(Kernel *self, int slot, const uint8_t *screen)
{
    int width = self->width;
    for (int y = 0; y < self->height; y++) {
        size_t offset = (size_t)y * width;
        uint8_t *raw = self->raw[slot] + offset;
        int all = !self->seen[slot];
        if (!all && memcmp(raw, screen + offset, width) == 0)
            continue;
        self->stale[y] = 1;
        if (look_up(self->palette, screen + offset, raw, self->gray[slot] + offset, width, all)) {
            self->seen[slot] = 0;
            return 0;
        }
    }
    self->seen[slot] = 1;
    return 1;
}

/* Pool `a` with `b` where a row is stale, resize what changed, write the frame to `out`. */
static void render(Kernel *self, const uint8_t *a, const uint8_t *b, uint8_t *out)
{
    int width = self->width, out_width = self->out_width;
    for (int y = 0; y < self->height; y++) {
        size_t offset = (size_t)y * width;
        uint8_t *pooled = self->pooled + offset;
        self->changed[y] = 0;
        if (!self->stale[y])
            continue;
        self->stale[y] = 0;
        if (!pool(a + offset, b + offset, pooled, width))
            continue;
        self->changed[y] = 1;
        float *sums = self->sums + (size_t)y * out_width;
        if (y > 0 && memcmp(pooled, pooled - width, width) == 0)
            memcpy(sums, sums - out_width, out_width * sizeof *sums);
        else
            shrink_row(pooled, self->columns, self->weights, self->words, sums, out_width);
    }
    for (int y = 0; y < self->out_height; y++) {
        const Tap *taps = self->row_taps + self->rows[y];
        int count = self->rows[y + 1] - self->rows[y], changed = 0;
        for (int k = 0; k < count; k++)
            changed |= self->changed[taps[k].source];
        if (changed)
            shrink_column(self->sums, taps, count, (float *)self->words,
                          self->frame + (size_t)y * out_width, out_width);
    }
    memcpy(out, self->frame, (size_t)self->out_height * out_width);
}

/* The `size` bytes of a contiguous buffer. Returns NULL, with an exception, for any other. */
static uint8_t *bytes_of(PyObject *object, Py_buffer *view, int flags, Py_ssize_t size)
{
    if (PyObject_GetBuffer(object, view, flags) < 0)
        return NULL;
    if (view->len == size)
        return view->buf;
    PyErr_Format(PyExc_ValueError, "need a buffer of %zd bytes, got %zd", size, view->len);
    PyBuffer_Release(view);
    return NULL;
}

static Py_ssize_t screen_size(const Kernel *self)
{
    return (Py_ssize_t)self->height * self->width;
}

static Py_ssize_t frame_size(const Kernel *self)
{
    return (Py_ssize_t)self->out_height * self->out_width;
}

static int arguments(Py_ssize_t given, Py_ssize_t needed)
{
    if (given == needed)
        return 1;
    PyErr_Format(PyExc_TypeError, "takes %zd arguments, got %zd", needed, given);
    return 0;
}

static PyObject *kernel_clear(Kernel *self, PyObject *Py_UNUSED(none))
{
    self->seen[EARLIER] = 0;
    memset(self->gray[EARLIER], 0, screen_size(self));
    memset(self->stale, 1, self->height);
    Py_RETURN_NONE;
}

static PyObject *kernel_learn(Kernel *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer raw_view, gray_view;
    if (!arguments(count, 2))
        return NULL;
    const uint8_t *raw = bytes_of(args[0], &raw_view, PyBUF_SIMPLE, screen_size(self));
    if (!raw)
        return NULL;
    const uint8_t *gray = bytes_of(args[1], &gray_view, PyBUF_SIMPLE, screen_size(self));
    if (gray) {
        for (Py_ssize_t i = 0; i < screen_size(self); i++)
            self->palette[raw[i]] = gray[i];
        PyBuffer_Release(&gray_view);
    }
    PyBuffer_Release(&raw_view);
    if (!gray)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *kernel_earlier(Kernel *self, PyObject *screen)
{
    Py_buffer view;
    const uint8_t *raw = bytes_of(screen, &view, PyBUF_SIMPLE, screen_size(self));
    if (!raw)
        return NULL;
    int known = take(self, EARLIER, raw);
    PyBuffer_Release(&view);
    return PyBool_FromLong(known);
}

static PyObject *kernel_finish(Kernel *self, PyObject *const *args, Py_ssize_t count)
{
    Py_buffer screen_view, out_view;
    if (!arguments(count, 2))
        return NULL;
    const uint8_t *raw = bytes_of(args[0], &screen_view, PyBUF_SIMPLE, screen_size(self));
    if (!raw)
        return NULL;
    uint8_t *out = bytes_of(args[1], &out_view, PyBUF_WRITABLE, frame_size(self));
    int known = 0;
    if (out) {
        known = take(self, LAST, raw);
        if (known)
            render(self, self->gray[EARLIER], self->gray[LAST], out);
        PyBuffer_Release(&out_view);
    }
    PyBuffer_Release(&screen_view);
    return out ? PyBool_FromLong(known) : NULL;
}

static PyObject *kernel_cut(Kernel *self, PyObject *frame)
{
    Py_buffer view;
    uint8_t *out = bytes_of(frame, &view, PyBUF_WRITABLE, frame_size(self));
    if (!out)
        return NULL;
    render(self, self->pooled, self->gray[EARLIER], out);
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static PyObject *kernel_repeat(Kernel *self, PyObject *frame)
{
    Py_buffer view;
    uint8_t *out = bytes_of(frame, &view, PyBUF_WRITABLE, frame_size(self));
    if (!out)
        return NULL;
    memcpy(out, self->frame, frame_size(self));
    PyBuffer_Release(&view);
    Py_RETURN_NONE;
}

static void kernel_dealloc(Kernel *self)
{
    void *owned[] = {self->raw[0], self->raw[1], self->gray[0], self->gray[1], self->stale,
                     self->changed, self->pooled, self->sums, self->frame, self->columns,
                     self->weights, self->rows, self->row_taps, self->words};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        PyMem_Free(owned[i]);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Fill the horizontal tables; returns 0 if a column needs more than TAPS taps. */
static int set_columns(Kernel *self, const int *first, const Tap *taps)
{
    for (int x = 0; x < self->out_width; x++) {
        int count = first[x + 1] - first[x];
        if (count > TAPS)
            return 0;
        self->columns[x] = taps[first[x]].source;
        for (int k = 0; k < count; k++)
            self->weights[k * self->out_width + x] = taps[first[x] + k].weight;
    }
    return 1;
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    int height, width, out_height, out_width;
    static char *names[] = {"height", "width", "out_height", "out_width", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiii", names, &height, &width, &out_height,
                                     &out_width))
        return NULL;
    if (out_height < 1 || out_width < 1 || out_height > height || out_width > width ||
        height > 4096 || width > 4096 || width % WORD) {
        PyErr_SetString(PyExc_ValueError, "the kernel only shrinks, and widths in eights");
        return NULL;
    }
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->height = height;
    self->width = width;
    self->out_height = out_height;
    self->out_width = out_width;
    for (int i = 0; i < 256; i++)
        self->palette[i] = UNKNOWN;
    size_t screen = (size_t)height * width;
    for (int slot = 0; slot < 2; slot++) {
        self->raw[slot] = PyMem_Calloc(screen, 1);
        self->gray[slot] = PyMem_Calloc(screen, 1);
    }
    self->stale = PyMem_Calloc(height, 1);
    self->changed = PyMem_Calloc(height, 1);
    self->pooled = PyMem_Calloc(screen + 3, 1);
    self->sums = PyMem_Calloc((size_t)height * out_width, sizeof *self->sums);
    self->frame = PyMem_Calloc((size_t)out_height * out_width, 1);
    self->columns = PyMem_Calloc(out_width, sizeof *self->columns);
    self->weights = PyMem_Calloc((size_t)TAPS * out_width, sizeof *self->weights);
    self->rows = PyMem_Calloc(out_height + 1, sizeof *self->rows);
    self->row_taps = PyMem_Calloc(height + 2 * (size_t)out_height, sizeof *self->row_taps);
    self->words = PyMem_Calloc(out_width, sizeof *self->words);
    int *first = PyMem_Calloc(out_width + 1, sizeof *first);
    Tap *taps = PyMem_Calloc(width + 2 * (size_t)out_width, sizeof *taps);
    int supported = 0;
    if (!self->raw[0] || !self->raw[1] || !self->gray[0] || !self->gray[1] || !self->stale ||
        !self->changed || !self->pooled || !self->sums || !self->frame || !self->columns ||
        !self->weights || !self->rows || !self->row_taps || !self->words || !first || !taps) {
        PyErr_NoMemory();
    } else {
        area_taps(height, out_height, self->rows, self->row_taps);
        area_taps(width, out_width, first, taps);
        supported = set_columns(self, first, taps);
        if (!supported)
            PyErr_SetString(PyExc_ValueError, "the kernel averages 3 columns at most");
    }
    PyMem_Free(first);
    PyMem_Free(taps);
    if (!supported)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyMethodDef kernel_methods[] = {
    {"clear", (PyCFunction)kernel_clear, METH_NOARGS,
     "Forget the earlier screen: the next frame shows the last one alone."},
    {"learn", (PyCFunction)(void (*)(void))kernel_learn, METH_FASTCALL,
     "Learn the palette from a raw screen and its grayscale, uint8 [height, width] each."},
    {"earlier", (PyCFunction)kernel_earlier, METH_O,
     "Take a step's earlier raw screen. False: it shows unknown colours; learn, then repeat."},
    {"finish", (PyCFunction)(void (*)(void))kernel_finish, METH_FASTCALL,
     "Take a step's last raw screen, write the frame to the second argument. False: see earlier."},
    {"cut", (PyCFunction)kernel_cut, METH_O,
     "Write the maximum of the last frame's screens and the earlier screen, resized."},
    {"repeat", (PyCFunction)kernel_repeat, METH_O, "Write the last frame again."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sampler.envs._preprocess.Kernel",
    .tp_doc = "Kernel(height, width, out_height, out_width): one emulator's screens to frames.",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = kernel_new,
    .tp_dealloc = (destructor)kernel_dealloc,
    .tp_methods = kernel_methods,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "sampler.envs._preprocess",
    .m_doc = "Fused Atari preprocessing.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__preprocess(void)
{
    if (PyType_Ready(&kernel_type) < 0)
        return NULL;
    PyObject *created = PyModule_Create(&module);
    if (!created)
        return NULL;
    Py_INCREF(&kernel_type);
    if (PyModule_AddObject(created, "Kernel", (PyObject *)&kernel_type) < 0) {
        Py_DECREF(&kernel_type);
        Py_DECREF(created);
        return NULL;
    }
    return created;
}
