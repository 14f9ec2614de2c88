// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuDNN's legacy API, against loops of the host: convolutions and their gradients, pooling, softmax, activation functions, batch
// normalisation, operations on elements, reductions, capture, and mistakes.

#include "library.h"

#include <cuda_fp16.h>

// cudnn.h
enum { FLOAT = 0, DOUBLE = 1, HALF = 2, NCHW = 0, NHWC = 1, CONVOLUTION = 0, CROSS_CORRELATION = 1 };

static Handle handle;
static cudaStream_t stream;
static const float one = 1, zero = 0;

// Sizes of a convolution of images.
struct Sizes {
    int n, c, h, w, k, r, s, groups, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w;
    int p() const { return (h + 2 * pad_h - dilation_h * (r - 1) - 1) / stride_h + 1; }
    int q() const { return (w + 2 * pad_w - dilation_w * (s - 1) - 1) / stride_w + 1; }
    int inputs() const { return n * c * h * w; }
    int weights() const { return k * c / groups * r * s; }
    int outputs() const { return n * k * p() * q(); }
};

// Calls body with the places of input, weight and output for each product of the convolution.
template <class F> static void products(const Sizes &z, bool reversed, F body) {
    const int per_group = z.c / z.groups, p = z.p(), q = z.q();
    for (int n = 0; n < z.n; n++)
        for (int k = 0; k < z.k; k++)
            for (int y = 0; y < p; y++)
                for (int x = 0; x < q; x++)
                    for (int c = 0; c < per_group; c++)
                        for (int r = 0; r < z.r; r++)
                            for (int s = 0; s < z.s; s++) {
                                const int i = y * z.stride_h - z.pad_h + (reversed ? z.r - 1 - r : r) * z.dilation_h;
                                const int j = x * z.stride_w - z.pad_w + (reversed ? z.s - 1 - s : s) * z.dilation_w;
                                if (i < 0 || i >= z.h || j < 0 || j >= z.w) continue;
                                const int channel = k / (z.k / z.groups) * per_group + c;
                                body(((n * z.c + channel) * z.h + i) * z.w + j, ((k * per_group + c) * z.r + r) * z.s + s,
                                     ((n * z.k + k) * p + y) * q + x);
                            }
}

static Handle tensor(int n, int c, int h, int w, int type = FLOAT, int format = NCHW) {
    Handle made;
    CHECK(call("cudnnCreateTensorDescriptor", &made));
    CHECK(call("cudnnSetTensor4dDescriptor", made, format, type, n, c, h, w));
    return made;
}

static Handle filter(int k, int c, int r, int s, int type = FLOAT, int format = NCHW) {
    Handle made;
    CHECK(call("cudnnCreateFilterDescriptor", &made));
    CHECK(call("cudnnSetFilter4dDescriptor", made, type, format, k, c, r, s));
    return made;
}

static Handle convolution(const Sizes &z, int mode, int compute = FLOAT) {
    Handle made;
    CHECK(call("cudnnCreateConvolutionDescriptor", &made));
    CHECK(call("cudnnSetConvolution2dDescriptor", made, z.pad_h, z.pad_w, z.stride_h, z.stride_w, z.dilation_h, z.dilation_w, mode, compute));
    CHECK(call("cudnnSetConvolutionGroupCount", made, z.groups));
    return made;
}

struct Performance {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
};

static void *workspace(size_t bytes) {
    void *memory = nullptr;
    if (bytes) CHECK(cudaMalloc(&memory, bytes));
    return memory;
}

// A convolution and its gradients, with alpha 2 and beta -1.
template <class T> static void convolve(const char *name, const Sizes &z, int mode, int type) {
    Handle x = tensor(z.n, z.c, z.h, z.w, type), y = tensor(z.n, z.k, z.p(), z.q(), type), w = filter(z.k, z.c / z.groups, z.r, z.s, type);
    Handle what = convolution(z, mode, type);
    int n, k, p, q;
    CHECK(call("cudnnGetConvolution2dForwardOutputDim", what, x, w, &n, &k, &p, &q));
    if (n != z.n || k != z.k || p != z.p() || q != z.q()) printf("%s: the output has wrong dimensions\n", name);
    const auto hx = numbers<T>(z.inputs(), 1), hw = numbers<T>(z.weights(), 2), hy = numbers<T>(z.outputs(), 3);
    T *dx = on_device(hx), *dw = on_device(hw), *dy = on_device(hy);
    const T alpha = 2, beta = -1;
    Performance best;
    int count = 0;
    size_t bytes = 0;
    std::vector<T> wanted(hy.size()), wanted_x(hx.size()), wanted_w(hw.size());
    for (size_t i = 0; i < hy.size(); i++) wanted[i] = -hy[i];
    for (size_t i = 0; i < hx.size(); i++) wanted_x[i] = -hx[i];
    for (size_t i = 0; i < hw.size(); i++) wanted_w[i] = -hw[i];
    products(z, mode == CONVOLUTION, [&](int i, int j, int o) {
        wanted[o] += 2 * hx[i] * hw[j];
        wanted_x[i] += 2 * hw[j] * hy[o];
        wanted_w[j] += 2 * hx[i] * hy[o];
    });

    CHECK(call("cudnnGetConvolutionForwardAlgorithm_v7", handle, x, w, what, y, 1, &count, &best));
    CHECK(call("cudnnGetConvolutionForwardWorkspaceSize", handle, x, w, what, y, best.algorithm, &bytes));
    T *result = on_device(hy);
    CHECK(call("cudnnConvolutionForward", handle, &alpha, x, dx, w, dw, what, best.algorithm, workspace(bytes), bytes, &beta, y, result));
    CHECK(cudaStreamSynchronize(stream));
    char line[80];
    snprintf(line, sizeof line, "%s, forward", name);
    compare(line, back(result, hy.size()), wanted, 1e-5);

    CHECK(call("cudnnGetConvolutionBackwardDataAlgorithm_v7", handle, w, y, what, x, 1, &count, &best));
    CHECK(call("cudnnGetConvolutionBackwardDataWorkspaceSize", handle, w, y, what, x, best.algorithm, &bytes));
    result = on_device(hx);
    CHECK(call("cudnnConvolutionBackwardData", handle, &alpha, w, dw, y, dy, what, best.algorithm, workspace(bytes), bytes, &beta, x, result));
    CHECK(cudaStreamSynchronize(stream));
    snprintf(line, sizeof line, "%s, gradient of the input", name);
    compare(line, back(result, hx.size()), wanted_x, 1e-5);

    CHECK(call("cudnnGetConvolutionBackwardFilterAlgorithm_v7", handle, x, y, what, w, 1, &count, &best));
    CHECK(call("cudnnGetConvolutionBackwardFilterWorkspaceSize", handle, x, y, what, w, best.algorithm, &bytes));
    result = on_device(hw);
    CHECK(call("cudnnConvolutionBackwardFilter", handle, &alpha, x, dx, y, dy, what, best.algorithm, workspace(bytes), bytes, &beta, w, result));
    CHECK(cudaStreamSynchronize(stream));
    snprintf(line, sizeof line, "%s, gradient of the filter", name);
    compare(line, back(result, hw.size()), wanted_w, 1e-5);
    for (Handle one : {x, y}) CHECK(call("cudnnDestroyTensorDescriptor", one));
    CHECK(call("cudnnDestroyFilterDescriptor", w));
    CHECK(call("cudnnDestroyConvolutionDescriptor", what));
}

// Channels side by side, half precision, bias and relu.
static void half_with_bias() {
    const Sizes z = {2, 8, 7, 6, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    auto hx = numbers(z.inputs(), 4), hw = numbers(z.weights(), 5), bias = numbers(z.k, 6);
    std::vector<float> wanted(z.outputs());
    products(z, false, [&](int i, int j, int o) { wanted[o] += hx[i] * hw[j]; });
    const auto last = [](const std::vector<float> &values, int n, int c, int inner) {
        std::vector<__half> turned(values.size());
        for (int i = 0; i < n; i++)
            for (int j = 0; j < c; j++)
                for (int l = 0; l < inner; l++) turned[(i * inner + l) * c + j] = __float2half(values[(i * c + j) * inner + l]);
        return turned;
    };
    const int area = z.p() * z.q();
    for (int o = 0; o < z.outputs(); o++) wanted[o] = std::max(0.f, wanted[o] + bias[o / area % z.k]);
    std::vector<__half> half_bias(z.k);
    for (int k = 0; k < z.k; k++) half_bias[k] = __float2half(bias[k]);
    Handle x = tensor(z.n, z.c, z.h, z.w, HALF, NHWC), y = tensor(z.n, z.k, z.p(), z.q(), HALF, NHWC), w = filter(z.k, z.c, z.r, z.s, HALF, NHWC);
    Handle b = tensor(1, z.k, 1, 1, HALF, NHWC), what = convolution(z, CROSS_CORRELATION), relu;
    CHECK(call("cudnnSetConvolutionMathType", what, 1));
    CHECK(call("cudnnCreateActivationDescriptor", &relu));
    CHECK(call("cudnnSetActivationDescriptor", relu, 1, 0, 0.0));
    __half *result = on_device(std::vector<__half>(z.outputs()));
    const auto dx = on_device(last(hx, z.n, z.c, z.h * z.w)), dw = on_device(last(hw, z.k, z.c, z.r * z.s)), db = on_device(half_bias);
    size_t bytes = 0;
    CHECK(call("cudnnGetConvolutionForwardWorkspaceSize", handle, x, w, what, y, 1, &bytes));
    CHECK(call("cudnnConvolutionBiasActivationForward", handle, &one, x, dx, w, dw, what, 1, workspace(bytes), bytes, &zero, y, result, b, db, relu,
               y, result));
    CHECK(cudaStreamSynchronize(stream));
    const auto got = back(result, z.outputs()), expected = last(wanted, z.n, z.k, area);
    std::vector<float> wide(got.size()), wide_expected(got.size());
    for (size_t i = 0; i < got.size(); i++) wide[i] = __half2float(got[i]), wide_expected[i] = __half2float(expected[i]);
    compare("half, channels last, bias and relu", wide, wide_expected, 1e-3);
}

static void volumes() {
    const int xs[] = {2, 2, 4, 5, 3}, ws[] = {3, 2, 2, 3, 2}, pads[] = {1, 0, 1}, strides[] = {2, 1, 1}, dilations[] = {1, 2, 1};
    Handle x, w, y, what;
    CHECK(call("cudnnCreateTensorDescriptor", &x));
    CHECK(call("cudnnCreateTensorDescriptor", &y));
    CHECK(call("cudnnCreateFilterDescriptor", &w));
    CHECK(call("cudnnCreateConvolutionDescriptor", &what));
    CHECK(call("cudnnSetTensorNdDescriptorEx", x, (int)NCHW, (int)FLOAT, 5, xs));
    CHECK(call("cudnnSetFilterNdDescriptor", w, (int)FLOAT, (int)NCHW, 5, ws));
    CHECK(call("cudnnSetConvolutionNdDescriptor", what, 3, pads, strides, dilations, (int)CROSS_CORRELATION, (int)FLOAT));
    int ys[5];
    CHECK(call("cudnnGetConvolutionNdForwardOutputDim", what, x, w, 5, ys));
    CHECK(call("cudnnSetTensorNdDescriptorEx", y, (int)NCHW, (int)FLOAT, 5, ys));
    const int size = xs[2] * xs[3] * xs[4], taps = ws[2] * ws[3] * ws[4], area = ys[2] * ys[3] * ys[4];
    const auto hx = numbers(xs[0] * xs[1] * size, 1), hw = numbers(ws[0] * ws[1] * taps, 2);
    std::vector<float> wanted(ys[0] * ys[1] * area);
    for (int o = 0; o < (int)wanted.size(); o++)
        for (int c = 0; c < xs[1]; c++)
            for (int t = 0; t < taps; t++) {
                const int at[] = {o / (ys[3] * ys[4]) % ys[2], o / ys[4] % ys[3], o % ys[4]}, tap[] = {t / (ws[3] * ws[4]), t / ws[4] % ws[3], t % ws[4]};
                int place = o / area / ys[1] * xs[1] + c;
                bool inside = true;
                for (int d = 0; d < 3; d++) {
                    const int i = at[d] * strides[d] - pads[d] + tap[d] * dilations[d];
                    inside = inside && i >= 0 && i < xs[d + 2];
                    place = place * xs[d + 2] + i;
                }
                if (inside) wanted[o] += hx[place] * hw[(o / area % ys[1] * ws[1] + c) * taps + t];
            }
    float *result = on_device(std::vector<float>(wanted.size()));
    const auto dx = on_device(hx), dw = on_device(hw);
    size_t bytes = 0;
    CHECK(call("cudnnGetConvolutionForwardWorkspaceSize", handle, x, w, what, y, 0, &bytes));
    CHECK(call("cudnnConvolutionForward", handle, &one, x, dx, w, dw, what, 0, workspace(bytes), bytes, &zero, y, result));
    CHECK(cudaStreamSynchronize(stream));
    compare("three dimensions", back(result, wanted.size()), wanted, 1e-5);
}

static void layers() {
    const int n = 2, c = 3, h = 6, w = 4, count = n * c * h * w, outputs = n * c * 3 * 2;
    auto hx = numbers(count, 7);
    for (int i = 0; i < count; i++) hx[i] = hx[i] / 4 + i % 7 / 64.f;
    const auto hdy = numbers(count, 8);
    Handle x = tensor(n, c, h, w), y = tensor(n, c, 3, 2), channels = tensor(1, c, 1, 1);
    const auto dx = on_device(hx), dy = on_device(hdy);
    float *result = on_device(hx), *gradient = on_device(hx);
    std::vector<float> wanted(count);

    for (int mode : {0, 1}) {
        Handle pooling;
        CHECK(call("cudnnCreatePoolingDescriptor", &pooling));
        CHECK(call("cudnnSetPooling2dDescriptor", pooling, mode, 0, 2, 2, 0, 0, 2, 2));
        int dims[4];
        CHECK(call("cudnnGetPooling2dForwardOutputDim", pooling, x, dims, dims + 1, dims + 2, dims + 3));
        if (dims[0] != n || dims[1] != c || dims[2] != 3 || dims[3] != 2) printf("wrong dimensions\n");
        CHECK(call("cudnnPoolingForward", handle, pooling, &one, x, dx, &zero, y, result));
        CHECK(call("cudnnPoolingBackward", handle, pooling, &one, y, result, y, dy, x, dx, &zero, x, gradient));
        CHECK(cudaStreamSynchronize(stream));
        std::vector<float> pooled(outputs), back_to(count);
        for (int o = 0; o < outputs; o++) {
            const int first = o / 6 * h * w + o / 2 % 3 * 2 * w + o % 2 * 2, all[] = {first, first + 1, first + w, first + w + 1};
            int best = first;
            for (int i : all) {
                best = hx[i] > hx[best] ? i : best;
                pooled[o] += hx[i] / 4;
                if (mode == 1) back_to[i] += hdy[o] / 4;
            }
            if (mode == 0) pooled[o] = hx[best], back_to[best] += hdy[o];
        }
        compare(mode ? "average" : "maximum", back(result, outputs), pooled, 1e-6);
        compare("its gradient", back(gradient, count), back_to, 1e-6);
    }

    CHECK(call("cudnnSoftmaxForward", handle, 1, 1, &one, x, dx, &zero, x, result));
    CHECK(call("cudnnSoftmaxBackward", handle, 1, 1, &one, x, result, x, dy, &zero, x, gradient));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> slopes(count);
    for (int i = 0; i < count; i++) {
        const int first = i / (c * h * w) * c * h * w + i % (h * w);
        double sum = 0, dot = 0;
        for (int j = 0; j < c; j++) sum += exp((double)hx[first + j * h * w]);
        for (int j = 0; j < c; j++) dot += exp((double)hx[first + j * h * w]) / sum * hdy[first + j * h * w];
        wanted[i] = exp((double)hx[i]) / sum;
        slopes[i] = wanted[i] * (hdy[i] - dot);
    }
    compare("softmax", back(result, count), wanted, 1e-5);
    compare("its gradient", back(gradient, count), slopes, 1e-5);

    // Sigmoid, relu, tanh, elu.
    for (int mode : {0, 1, 2, 4}) {
        Handle activation;
        CHECK(call("cudnnCreateActivationDescriptor", &activation));
        CHECK(call("cudnnSetActivationDescriptor", activation, mode, 0, 1.0));
        CHECK(call("cudnnActivationForward", handle, activation, &one, x, dx, &zero, x, result));
        CHECK(call("cudnnActivationBackward", handle, activation, &one, x, result, x, dy, x, dx, &zero, x, gradient));
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < count; i++) {
            const double v = hx[i], s = 1 / (1 + exp(-v));
            wanted[i] = mode == 0 ? s : mode == 1 ? fmax(v, 0) : mode == 2 ? tanh(v) : v > 0 ? v : expm1(v);
            slopes[i] = hdy[i] * (mode == 0 ? s * (1 - s) : mode == 1 ? v > 0 : mode == 2 ? 1 - tanh(v) * tanh(v) : v > 0 ? 1 : exp(v));
        }
        const char *names[] = {"sigmoid", "relu", "tanh", "", "elu"};
        compare(names[mode], back(result, count), wanted, 1e-5);
        compare("its gradient", back(gradient, count), slopes, 1e-5);
    }

    // Batch normalisation: means, variances, and what is kept of them.
    const std::vector<float> scale = {1, 2, -1}, bias = {0, 1, 2}, start = {1, 2, 3};
    const auto dscale = on_device(scale), dbias = on_device(bias);
    float *mean = on_device(bias), *variance = on_device(start), *saved = on_device(scale), *inverse = on_device(scale);
    const double epsilon = 1e-3, factor = 0.25;
    CHECK(call("cudnnBatchNormalizationForwardTraining", handle, 1, &one, &zero, x, dx, x, result, channels, dscale, dbias, factor, mean, variance,
               epsilon, saved, inverse));
    float *to_scale = on_device(scale), *to_bias = on_device(scale);
    CHECK(call("cudnnBatchNormalizationBackward", handle, 1, &one, &zero, &one, &zero, x, dx, x, dy, x, gradient, channels, dscale, to_scale, to_bias,
               epsilon, saved, inverse));
    float *inferred = on_device(hx);
    CHECK(call("cudnnBatchNormalizationForwardInference", handle, 1, &one, &zero, x, dx, x, inferred, channels, dscale, dbias, mean, variance, epsilon));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> running_mean(c), running_variance(c), scales(c), biases(c), by_running(count);
    for (int j = 0; j < c; j++) {
        const int m = n * h * w;
        double m1 = 0, m2 = 0, sum = 0, dot = 0;
        const auto each = [&](auto body) {
            for (int i = 0; i < n; i++)
                for (int l = 0; l < h * w; l++) body((i * c + j) * h * w + l);
        };
        each([&](int i) { m1 += hx[i] / (double)m; });
        each([&](int i) { m2 += (hx[i] - m1) * (hx[i] - m1) / m; });
        const double inv = 1 / sqrt(m2 + epsilon);
        each([&](int i) { sum += hdy[i], dot += hdy[i] * (hx[i] - m1) * inv; });
        running_mean[j] = factor * m1 + (1 - factor) * bias[j], running_variance[j] = factor * m2 * m / (m - 1) + (1 - factor) * start[j];
        scales[j] = dot, biases[j] = sum;
        each([&](int i) {
            wanted[i] = (hx[i] - m1) * inv * scale[j] + bias[j];
            slopes[i] = scale[j] * inv * (hdy[i] - sum / m - (hx[i] - m1) * inv * dot / m);
            by_running[i] = (hx[i] - running_mean[j]) / sqrt(running_variance[j] + epsilon) * scale[j] + bias[j];
        });
    }
    compare("batch normalisation", back(result, count), wanted, 1e-5);
    compare("running means", back(mean, c), running_mean, 1e-5);
    compare("running variances", back(variance, c), running_variance, 1e-5);
    compare("its gradient", back(gradient, count), slopes, 1e-5);
    compare("that of the scale", back(to_scale, c), scales, 1e-5);
    compare("that of the bias", back(to_bias, c), biases, 1e-5);
    compare("by the running statistics", back(inferred, count), by_running, 1e-5);
}

static void elements() {
    const int n = 2, c = 3, h = 4, w = 5, count = n * c * h * w;
    const auto ha = numbers(count, 1), hb = numbers(c, 2), hc = numbers(count, 3);
    Handle a = tensor(n, c, h, w), b = tensor(1, c, 1, 1), last = tensor(n, c, h, w, FLOAT, NHWC);
    const auto da = on_device(ha), db = on_device(hb);
    float *dc = on_device(hc);
    const float two = 2, three = 3, minus = -1;
    std::vector<float> wanted(count);
    CHECK(call("cudnnAddTensor", handle, &two, b, db, &minus, a, dc));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < count; i++) wanted[i] = 2 * hb[i / (h * w) % c] - hc[i];
    compare("add a bias", back(dc, count), wanted, 1e-6);
    Handle op;
    CHECK(call("cudnnCreateOpTensorDescriptor", &op));
    CHECK(call("cudnnSetOpTensorDescriptor", op, 1, (int)FLOAT, 0));
    CHECK(call("cudnnOpTensor", handle, op, &two, a, da, &three, b, db, &zero, a, dc));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < count; i++) wanted[i] = 6 * ha[i] * hb[i / (h * w) % c];
    compare("multiply by channels", back(dc, count), wanted, 1e-6);
    CHECK(call("cudnnTransformTensor", handle, &one, a, da, &zero, last, dc));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < c; j++)
            for (int l = 0; l < h * w; l++) wanted[(i * h * w + l) * c + j] = ha[(i * c + j) * h * w + l];
    compare("channels last", back(dc, count), wanted, 0);
    CHECK(call("cudnnSetTensor", handle, a, dc, &three));
    CHECK(call("cudnnScaleTensor", handle, a, dc, &two));
    CHECK(cudaStreamSynchronize(stream));
    compare("set and scale", back(dc, count), std::vector<float>(count, 6), 0);
    CHECK(call("cudnnConvolutionBackwardBias", handle, &two, a, da, &zero, b, dc));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> sums(c), norms(c);
    for (int i = 0; i < count; i++) sums[i / (h * w) % c] += 2 * ha[i], norms[i / (h * w) % c] += ha[i] * ha[i];
    compare("gradient of a bias", back(dc, c), sums, 1e-6);
    Handle reduce;
    CHECK(call("cudnnCreateReduceTensorDescriptor", &reduce));
    CHECK(call("cudnnSetReduceTensorDescriptor", reduce, 7, (int)FLOAT, 0, 0, 0));
    size_t bytes = 0;
    CHECK(call("cudnnGetReductionWorkspaceSize", handle, reduce, a, b, &bytes));
    CHECK(call("cudnnReduceTensor", handle, reduce, (void *)nullptr, (size_t)0, workspace(bytes), bytes, &one, a, da, &zero, b, dc));
    CHECK(cudaStreamSynchronize(stream));
    for (float &norm : norms) norm = sqrt(norm);
    compare("norms", back(dc, c), norms, 1e-5);
}

// A convolution in a graph: it runs at each launch, with what its memory holds then.
static void capture() {
    const Sizes z = {1, 2, 5, 5, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    Handle x = tensor(z.n, z.c, z.h, z.w), y = tensor(z.n, z.k, z.p(), z.q()), w = filter(z.k, z.c, z.r, z.s), what = convolution(z, CROSS_CORRELATION);
    const auto hw = numbers(z.weights(), 2);
    const auto first = numbers(z.inputs(), 1), second = numbers(z.inputs(), 9);
    float *dx = on_device(first), *result = on_device(std::vector<float>(z.outputs()));
    const auto dw = on_device(hw);
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(call("cudnnConvolutionForward", handle, &one, x, dx, w, dw, what, 0, (void *)nullptr, (size_t)0, &zero, y, result));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    for (const auto &input : {first, second}) {
        CHECK(cudaMemcpyAsync(dx, input.data(), input.size() * sizeof(float), cudaMemcpyHostToDevice, stream));
        CHECK(cudaGraphLaunch(executable, stream));
        CHECK(cudaStreamSynchronize(stream));
        std::vector<float> wanted(z.outputs());
        products(z, false, [&](int i, int j, int o) { wanted[o] += input[i] * hw[j]; });
        compare("in a graph", back(result, z.outputs()), wanted, 1e-5);
    }
    CHECK(cudaGraphExecDestroy(executable));
    CHECK(cudaGraphDestroy(graph));
}

static void mistakes() {
    const Sizes z = {1, 2, 5, 5, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    Handle x = tensor(z.n, z.c, z.h, z.w), y = tensor(z.n, z.k, z.p(), z.q() + 1), w = filter(z.k, z.c, z.r, z.s), what = convolution(z, CROSS_CORRELATION);
    const auto refused = [](const char *name, int status) { printf("%s: %s\n", name, status != 0 ? "refused" : "accepted"); };
    // Calls that have a result, so that they are waited for.
    size_t bytes;
    refused("sizes that do not fit", call("cudnnGetConvolutionForwardWorkspaceSize", handle, x, w, what, y, 0, &bytes));
    int dims[4];
    refused("channels that do not fit",
            call("cudnnGetConvolution2dForwardOutputDim", what, y, filter(3, 5, 3, 3), dims, dims + 1, dims + 2, dims + 3));
    refused("a negative size", call("cudnnSetTensor4dDescriptor", x, 0, 0, 1, -2, 5, 5));
    refused("a type that is none", call("cudnnSetTensor4dDescriptor", x, 0, 99, 1, 2, 5, 5));
    refused("no tensor", call("cudnnGetTensorSizeInBytes", (Handle) nullptr, &bytes));
    refused("no place for a tensor", call("cudnnCreateTensorDescriptor", (void *)nullptr));
    // The last act: the context is unusable afterwards.
    const int status = call("cudnnScaleTensor", handle, x, (float *)0x1000, &one);
    refused("an address that is none", status != 0 ? status : (int)cudaStreamSynchronize(stream));
}

int main() {
    load({"libcudnn.so.9"});
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cudnnCreate", &handle));
    CHECK(call("cudnnSetStream", handle, stream));
    convolve<float>("plain", {2, 3, 7, 6, 4, 3, 2, 1, 0, 0, 1, 1, 1, 1}, CROSS_CORRELATION, FLOAT);
    convolve<float>("pads, strides, dilations", {2, 3, 11, 12, 4, 3, 3, 1, 2, 1, 2, 1, 2, 3}, CROSS_CORRELATION, FLOAT);
    convolve<float>("groups", {2, 4, 8, 8, 6, 3, 3, 2, 1, 1, 1, 1, 1, 1}, CROSS_CORRELATION, FLOAT);
    convolve<float>("reversed", {1, 2, 6, 6, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CONVOLUTION, FLOAT);
    convolve<double>("doubles", {1, 2, 6, 5, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CROSS_CORRELATION, DOUBLE);
    half_with_bias();
    volumes();
    layers();
    elements();
    capture();
    mistakes();
    printf("done\n");
    return 0;
}
