// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuDNN's backend API: causal attention and its gradients as the graphs that cudnn-frontend makes for cuDNN 9.0 to 9.20, the
// same of batches of different lengths, and normalisations with their gradients.

#include "dnn_backend.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <map>
#include <string>

// Heads of queries share heads of keys and values by two. Head by head, position by position.
static const int64_t B = 2, H = 4, SHARED = 2, S = 128, D = 64;
static const float SCALE = 0.125;

template <class T> static int type_of();
template <> int type_of<__half>() { return DATA_HALF; }
template <> int type_of<__nv_bfloat16>() { return DATA_BFLOAT16; }

static const Sizes ROWS = {B, H, S, 1}, SCORES = {B, H, S, S};

static Sizes packed(const Sizes &dims) {
    Sizes strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * dims[i + 1];
    return strides;
}

// The operations of a graph that grows.
struct Builder {
    int type;
    // Batches have lengths of their own and follow each other, position by position.
    bool ragged = false;
    std::vector<Handle> operations = {};
    std::map<int64_t, Handle> known = {};
    int64_t next = 1000;

    // A tensor that several operations may use has one descriptor.
    Handle shared(int64_t uid, const Sizes &dims, const Sizes &strides, int of, bool by_value = false) {
        Handle &found = known[uid];
        if (!found) found = tensor(uid, dims, strides, of, false, by_value);
        return found;
    }

    Handle lengths() { return shared('n', {B, 1, 1, 1}, {1, 1, 1, 1}, DATA_INT32); }

    // A tensor of batches that follow each other. Its offsets have a tensor of the capital letter.
    Handle following(int64_t uid, const Sizes &dims, const Sizes &strides) {
        Handle offsets = shared(uid - 'a' + 'A', {B + 1, 1, 1, 1}, {1, 1, 1, 1}, DATA_INT32);
        return tensor(uid, dims, strides, type, false, false, offsets);
    }

    Handle memory(int64_t uid, int64_t heads) { return shared(uid, {B, heads, S, D}, packed({B, heads, S, D}), type); }
    Handle transposed(int64_t uid, int64_t heads) { return shared(uid, {B, heads, D, S}, {heads * S * D, S * D, 1, D}, type); }
    Handle rows(int64_t uid) { return shared(uid, ROWS, packed(ROWS), DATA_FLOAT); }
    Handle number(int64_t uid) { return shared(uid, {1, 1, 1, 1}, {1, 1, 1, 1}, DATA_FLOAT, true); }
    Handle between(const Sizes &dims, const Sizes &strides, int of = DATA_FLOAT) { return tensor(next++, dims, strides, of, true); }
    Handle between(const Sizes &dims, int of = DATA_FLOAT) { return between(dims, packed(dims), of); }

    Handle apply(int mode, Handle x, Handle b, Handle y) {
        if (b)
            operations.push_back(pointwise(mode, {{751, x}, {752, b}, {753, y}}));
        else
            operations.push_back(pointwise(mode, {{751, x}, {753, y}}));
        return y;
    }

    // Lengths override the dimensions of these attributes.
    Handle product(Handle a, Handle b, Handle c, std::initializer_list<int> overridden = {}) {
        Handle what = create(PRODUCT), made = create(OPERATION_PRODUCT);
        CHECK(set<int>(what, 1500, DATA_TYPE, {DATA_FLOAT}));
        if (overridden.size() && !operations.size()) CHECK(set<double>(what, 1503, DOUBLE, {0}));
        refer(made, 1523, finalized(what));
        refer(made, 1520, a);
        refer(made, 1521, b);
        refer(made, 1522, c);
        for (int name : overridden) refer(made, name, lengths());
        operations.push_back(finalized(made));
        return c;
    }

    Handle reduce(int mode, Handle x, Handle y) {
        Handle what = create(REDUCTION), made = create(OPERATION_REDUCTION);
        CHECK(set<int>(what, 1600, REDUCTION_OPERATOR, {mode}));
        CHECK(set<int>(what, 1601, DATA_TYPE, {DATA_FLOAT}));
        refer(made, 1612, finalized(what));
        refer(made, 1610, x);
        refer(made, 1611, y);
        operations.push_back(finalized(made));
        return y;
    }

    Handle reshape(Handle x, Handle y) {
        Handle made = create(RESHAPE);
        refer(made, 2200, x);
        refer(made, 2201, y);
        operations.push_back(finalized(made));
        return y;
    }

    // Scores of later keys become minus infinity.
    Handle mask(Handle scores, Handle to) {
        Handle row = between(SCORES, DATA_INT32), column = between(SCORES, DATA_INT32), seen = between(SCORES, DATA_BOOLEAN);
        operations.push_back(pointwise(INDEX, {{751, scores}, {753, row}}, DATA_FLOAT, 2));
        operations.push_back(pointwise(INDEX, {{751, scores}, {753, column}}, DATA_FLOAT, 3));
        operations.push_back(pointwise(GREATER_EQUAL, {{751, row}, {752, column}, {753, seen}}, DATA_BOOLEAN));
        operations.push_back(pointwise(SELECT, {{751, scores}, {752, number('i')}, {758, seen}, {753, to}}));
        return to;
    }

    // Scores outside of the batch become minus infinity.
    Handle inside(Handle scores) {
        Handle is_inside[2];
        for (int axis : {2, 3}) {
            Handle index = between(SCORES, DATA_INT32);
            operations.push_back(pointwise(INDEX, {{751, scores}, {753, index}}, DATA_INT32, axis));
            is_inside[axis - 2] = between(SCORES, DATA_BOOLEAN);
            operations.push_back(pointwise(LESS, {{751, index}, {752, lengths()}, {753, is_inside[axis - 2]}}, DATA_BOOLEAN));
        }
        Handle both = between(SCORES, DATA_BOOLEAN), to = between(SCORES);
        operations.push_back(pointwise(AND, {{751, is_inside[0]}, {752, is_inside[1]}, {753, both}}, DATA_BOOLEAN));
        operations.push_back(pointwise(SELECT, {{751, scores}, {752, number('i')}, {758, both}, {753, to}}));
        return to;
    }

    Handle scaled_scores() {
        Handle raw;
        if (ragged) {
            Handle q = following('q', {B, H, S, D}, {H * S * D, D, H * D, 1}), k = following('k', {B, SHARED, D, S}, {SHARED * S * D, D, 1, SHARED * D});
            raw = product(q, k, between(SCORES), {1525, 1526});
        } else {
            raw = product(memory('q', H), transposed('k', SHARED), between(SCORES));
        }
        return apply(MULTIPLY, raw, number('s'), between(SCORES));
    }

    Handle forward() {
        Handle scores = scaled_scores();
        if (ragged) scores = inside(scores);
        scores = mask(scores, between(SCORES));
        Handle largest = reduce(LARGEST, scores, between(ROWS));
        Handle shifted = apply(SUBTRACT, scores, largest, between(SCORES));
        Handle exponentials = apply(EXP, shifted, nullptr, between(SCORES));
        Handle sum = reduce(SUM, exponentials, between(ROWS));
        Handle logarithm = apply(LOG, sum, nullptr, between(ROWS));
        apply(ADD, largest, logarithm, rows('l'));
        Handle weights = apply(DIVIDE, exponentials, sum, between(SCORES, type));
        if (ragged) {
            Handle v = following('v', {B, SHARED, S, D}, {SHARED * S * D, D, SHARED * D, 1}), o = following('o', {B, H, S, D}, {H * S * D, D, H * D, 1});
            product(weights, v, o, {1525, 1527});
        } else {
            product(weights, memory('v', SHARED), memory('o', H));
        }
        return find_plan(operations);
    }

    Handle backward() {
        const Sizes columns = {H * S * S, S * S, 1, S};
        Handle gradient = memory('g', H);
        Handle along = apply(MULTIPLY, gradient, memory('o', H), between({B, H, S, D}, {H * S * D, S * D, H * D, 1}));
        along = reduce(SUM, along, between(ROWS));
        along = apply(MULTIPLY, along, number('1'), rows('a'));

        Handle shifted = apply(SUBTRACT, scaled_scores(), rows('l'), between(SCORES));
        Handle weights = apply(EXP, mask(shifted, between(SCORES)), nullptr, between(SCORES));
        Handle across = reshape(weights, between(SCORES, columns, type));
        Handle full = product(across, gradient, between({B, H, S, D}, type));
        reduce(SUM, full, memory('V', SHARED));

        Handle slopes = product(gradient, transposed('v', SHARED), between(SCORES));
        slopes = apply(SUBTRACT, slopes, along, between(SCORES));
        slopes = apply(MULTIPLY, slopes, weights, between(SCORES));
        slopes = apply(MULTIPLY, slopes, number('s'), between(SCORES));
        across = reshape(slopes, between(SCORES, columns, type));
        full = product(across, memory('q', H), between({B, H, S, D}, type));
        reduce(SUM, full, memory('K', SHARED));

        Handle keys = reshape(transposed('k', SHARED), between({B, SHARED, S, D}, type));
        Handle sums = product(slopes, keys, tensor('A', {B, H, S, D}, packed({B, H, S, D}), DATA_FLOAT));
        apply(IDENTITY, sums, nullptr, memory('Q', H));
        return find_plan(operations);
    }
};

template <class T> static std::vector<float> rounded(std::vector<float> values, float factor) {
    for (auto &value : values) value = (float)(T)(value * factor);
    return values;
}

template <class T> static void attention(const char *name, double tolerance) {
    const int64_t large = B * H * S * D, small = B * SHARED * S * D;
    const auto hq = rounded<T>(numbers(large, 1), 0.2f), hk = rounded<T>(numbers(small, 2), 0.2f), hv = rounded<T>(numbers(small, 3), 0.2f), hg = rounded<T>(numbers(large, 4), 0.2f);
    // By simple loops.
    std::vector<float> ho(large), hl(B * H * S), hdq(large), hdk(small), hdv(small);
    for (int64_t head = 0; head < B * H; head++)
        for (int64_t row = 0; row < S; row++) {
            const int64_t query = (head * S + row) * D, start = head / (H / SHARED) * S * D;
            std::vector<double> p(row + 1), output(D);
            double sum = 0, along = 0;
            for (int64_t at = 0; at <= row; at++) {
                double score = 0;
                for (int64_t d = 0; d < D; d++) score += (double)hq[query + d] * hk[start + at * D + d];
                sum += p[at] = exp(score * SCALE);
            }
            hl[head * S + row] = log(sum);
            for (int64_t at = 0; at <= row; at++)
                for (int64_t d = 0; d < D; d++) output[d] += p[at] / sum * hv[start + at * D + d];
            for (int64_t d = 0; d < D; d++) {
                ho[query + d] = output[d];
                along += output[d] * hg[query + d];
            }
            for (int64_t at = 0; at <= row; at++) {
                const int64_t key = start + at * D;
                double slope = 0;
                for (int64_t d = 0; d < D; d++) slope += (double)hg[query + d] * hv[key + d];
                slope = (slope - along) * p[at] / sum * SCALE;
                for (int64_t d = 0; d < D; d++) {
                    hdq[query + d] += slope * hk[key + d];
                    hdk[key + d] += slope * hq[query + d];
                    hdv[key + d] += p[at] / sum * hg[query + d];
                }
            }
        }
    T *q = on_device(narrow<T>(hq)), *k = on_device(narrow<T>(hk)), *v = on_device(narrow<T>(hv)), *g = on_device(narrow<T>(hg));
    T *o = on_device(std::vector<T>(large)), *dq = on_device(std::vector<T>(large)), *dk = on_device(std::vector<T>(small)), *dv = on_device(std::vector<T>(small));
    float *l = on_device(std::vector<float>(B * H * S)), *along = on_device(std::vector<float>(B * H * S)), *sums = on_device(std::vector<float>(large));
    float scale = SCALE, infinity = -INFINITY, one = 1;
    const auto named = [&](const char *what) { return std::string(name) + ", " + what; };
    Handle forward = Builder{type_of<T>()}.forward();
    if (!forward) return (void)printf("%s: no plan\n", name);
    execute(forward, {'q', 'k', 'v', 'o', 'l', 's', 'i'}, {q, k, v, o, l, &scale, &infinity});
    compare(named("output").c_str(), wide(o, large), ho, tolerance);
    compare(named("logarithms of sums").c_str(), back(l, hl.size()), hl, tolerance);
    Handle backward = Builder{type_of<T>()}.backward();
    if (!backward) return (void)printf("%s: no plan for gradients\n", name);
    execute(backward, {'q', 'k', 'v', 'o', 'g', 'l', 'a', 'A', 'Q', 'K', 'V', 's', 'i', '1'}, {q, k, v, o, g, l, along, sums, dq, dk, dv, &scale, &infinity, &one});
    compare(named("gradient of queries").c_str(), wide(dq, large), hdq, tolerance);
    compare(named("gradient of keys").c_str(), wide(dk, small), hdk, tolerance);
    compare(named("gradient of values").c_str(), wide(dv, small), hdv, tolerance);
    for (void *memory : {(void *)q, (void *)k, (void *)v, (void *)g, (void *)o, (void *)dq, (void *)dk, (void *)dv, (void *)l, (void *)along, (void *)sums}) CHECK(cudaFree(memory));
}

// Batches of different lengths, without memory for what they lack.
static void lengths() {
    const std::vector<int> counts = {(int)S, 80};
    std::vector<int> of_queries = {0}, of_keys = {0};
    int positions = 0;
    for (int count : counts) {
        positions += count;
        of_queries.push_back(positions * H * D);
        of_keys.push_back(positions * SHARED * D);
    }
    const auto hq = rounded<__half>(numbers(positions * H * D, 1), 0.2f), hk = rounded<__half>(numbers(positions * SHARED * D, 2), 0.2f), hv = rounded<__half>(numbers(positions * SHARED * D, 3), 0.2f);
    std::vector<float> ho(hq.size());
    for (int64_t batch = 0, first = 0; batch < B; first += counts[batch++])
        for (int64_t head = 0; head < H; head++)
            for (int64_t row = 0; row < counts[batch]; row++) {
                const int64_t query = ((first + row) * H + head) * D;
                const auto key = [&](int64_t at) { return ((first + at) * SHARED + head / (H / SHARED)) * D; };
                std::vector<double> p(row + 1);
                double sum = 0;
                for (int64_t at = 0; at <= row; at++) {
                    double score = 0;
                    for (int64_t d = 0; d < D; d++) score += (double)hq[query + d] * hk[key(at) + d];
                    sum += p[at] = exp(score * SCALE);
                }
                for (int64_t at = 0; at <= row; at++)
                    for (int64_t d = 0; d < D; d++) ho[query + d] += p[at] / sum * hv[key(at) + d];
            }
    __half *q = on_device(narrow<__half>(hq)), *k = on_device(narrow<__half>(hk)), *v = on_device(narrow<__half>(hv)), *o = on_device(std::vector<__half>(ho.size()));
    float *l = on_device(std::vector<float>(B * H * S));
    int *n = on_device(counts), *queries = on_device(of_queries), *keys = on_device(of_keys);
    float scale = SCALE, infinity = -INFINITY;
    Handle forward = Builder{DATA_HALF, true}.forward();
    if (!forward) return (void)printf("attention of different lengths: no plan\n");
    execute(forward, {'q', 'k', 'v', 'o', 'l', 's', 'i', 'n', 'Q', 'K', 'V', 'O'}, {q, k, v, o, l, &scale, &infinity, n, queries, keys, keys, queries});
    compare("attention of different lengths", wide(o, ho.size()), ho, 4e-3);
    for (void *memory : {(void *)q, (void *)k, (void *)v, (void *)o, (void *)l, (void *)n, (void *)queries, (void *)keys}) CHECK(cudaFree(memory));
}

// Layer and RMS normalisation of rows of C elements, in training.
static const int64_t N = 64, C = 128;

template <class T> static void normalisation(const char *name, bool is_centred, double tolerance) {
    const auto hx = rounded<T>(numbers(N * C, 1), 0.5f), hg = rounded<T>(numbers(N * C, 2), 0.25f);
    const auto hs = numbers(C, 3), hb = numbers(C, 4);
    float epsilon = 0.125;
    std::vector<float> hy(N * C), hm(N), hi(N), hdx(N * C), hds(C), hdb(C);
    for (int64_t n = 0; n < N; n++) {
        const float *x = &hx[n * C], *g = &hg[n * C];
        double mean = 0, square = 0, shift = 0, along = 0;
        for (int64_t c = 0; c < C && is_centred; c++) mean += x[c] / (double)C;
        for (int64_t c = 0; c < C; c++) square += (x[c] - mean) * (x[c] - mean) / C;
        const double inverse = 1 / sqrt(square + epsilon);
        hm[n] = mean, hi[n] = inverse;
        for (int64_t c = 0; c < C; c++) {
            const double normal = (x[c] - mean) * inverse, slope = (double)g[c] * hs[c];
            hy[n * C + c] = normal * hs[c] + (is_centred ? hb[c] : 0);
            hds[c] += g[c] * normal, hdb[c] += g[c];
            shift += is_centred ? slope / C : 0, along += slope * normal / C;
        }
        for (int64_t c = 0; c < C; c++) hdx[n * C + c] = inverse * ((double)g[c] * hs[c] - shift - (x[c] - mean) * inverse * along);
    }
    const Sizes dims = {N, C, 1, 1}, one = {1, 1, 1, 1};
    const auto rows = [&](int64_t uid) { return tensor(uid, dims, {C, 1, C, C}, type_of<T>()); };
    const auto parameters = [&](int64_t uid) { return tensor(uid, {1, C, 1, 1}, {C, 1, C, C}, DATA_FLOAT); };
    const auto statistics = [&](int64_t uid) { return tensor(uid, {N, 1, 1, 1}, one, DATA_FLOAT); };
    const int mode = is_centred ? 0 : 4;
    Handle forward = create(NORM_FORWARD);
    CHECK(set<int>(forward, 2000, NORM_MODE, {mode}));
    CHECK(set<int>(forward, 2001, NORM_PHASE, {1}));
    refer(forward, 2002, rows('x'));
    if (is_centred) refer(forward, 2003, statistics('m'));
    refer(forward, 2004, statistics('i'));
    refer(forward, 2005, parameters('s'));
    if (is_centred) refer(forward, 2006, parameters('b'));
    refer(forward, 2007, tensor('e', one, one, DATA_FLOAT, false, true));
    refer(forward, 2013, rows('y'));
    Handle backward = create(NORM_BACKWARD);
    CHECK(set<int>(backward, 2100, NORM_MODE, {mode}));
    refer(backward, 2101, rows('x'));
    if (is_centred) refer(backward, 2102, statistics('m'));
    refer(backward, 2103, statistics('i'));
    refer(backward, 2104, rows('g'));
    refer(backward, 2105, parameters('s'));
    refer(backward, 2107, parameters('S'));
    if (is_centred) refer(backward, 2108, parameters('B'));
    refer(backward, 2109, rows('X'));
    T *x = on_device(narrow<T>(hx)), *g = on_device(narrow<T>(hg)), *y = on_device(std::vector<T>(N * C)), *dx = on_device(std::vector<T>(N * C));
    float *s = on_device(hs), *b = on_device(hb), *m = on_device(std::vector<float>(N)), *i = on_device(std::vector<float>(N)), *ds = on_device(std::vector<float>(C)), *db = on_device(std::vector<float>(C));
    const auto named = [&](const char *what) { return std::string(name) + ", " + what; };
    // A pack has the tensors of its graph only.
    const auto run = [&](Handle plan, std::vector<std::pair<int64_t, void *>> tensors) {
        Sizes uids;
        std::vector<void *> addresses;
        for (const auto &[uid, address] : tensors) uids.push_back(uid), addresses.push_back(address);
        execute(plan, uids, addresses);
    };
    Handle made = find_plan({finalized(forward)});
    if (!made) return (void)printf("%s: no plan\n", name);
    std::vector<std::pair<int64_t, void *>> tensors = {{'x', x}, {'i', i}, {'s', s}, {'e', &epsilon}, {'y', y}};
    if (is_centred) tensors.insert(tensors.end(), {{'m', m}, {'b', b}});
    run(made, tensors);
    compare(named("output").c_str(), wide(y, N * C), hy, tolerance);
    if (is_centred) compare(named("mean").c_str(), back(m, N), hm, 1e-5);
    compare(named("reciprocal deviation").c_str(), back(i, N), hi, 1e-4);
    made = find_plan({finalized(backward)});
    if (!made) return (void)printf("%s: no plan for gradients\n", name);
    tensors = {{'x', x}, {'i', i}, {'g', g}, {'s', s}, {'S', ds}, {'X', dx}};
    if (is_centred) tensors.insert(tensors.end(), {{'m', m}, {'B', db}});
    run(made, tensors);
    compare(named("gradient of the input").c_str(), wide(dx, N * C), hdx, tolerance);
    compare(named("gradient of the scale").c_str(), back(ds, C), hds, 1e-3);
    if (is_centred) compare(named("gradient of the bias").c_str(), back(db, C), hdb, 1e-3);
}

int main() {
    load({"libcudnn.so.9"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cudnnCreate", &handle));
    CHECK(call("cudnnSetStream", handle, stream));
    attention<__half>("attention of f16", 4e-3);
    attention<__nv_bfloat16>("attention of bf16", 3e-2);
    lengths();
    normalisation<__half>("layer normalisation", true, 4e-3);
    normalisation<__nv_bfloat16>("RMS normalisation", false, 2e-2);
    CHECK(call("cudnnDestroy", handle));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaDeviceSynchronize());
    printf("done\n");
    return 0;
}
