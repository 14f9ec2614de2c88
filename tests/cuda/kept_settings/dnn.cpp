// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuDNN: descriptors of the API before graphs, and one of the backend.

#include "library_part.h"

#include <array>
#include <map>

// cudnn.h and cudnn_graph.h
enum { FLOAT = 0, DOUBLE = 1, BACKEND_TENSOR = 17, TENSOR_ALIGNMENT = 900, TENSOR_DATA_TYPE = 901, TENSOR_DIMENSIONS = 902, TENSOR_STRIDES = 903, TENSOR_ID = 906, TYPE_DATA_TYPE = 1, TYPE_INT64 = 3 };

static Handle handle, backend;
static cudaStream_t stream;
static std::map<std::string, Handle> made;

// The numbers behind a descriptor: as many places of four bytes.
template <size_t... I> static int get_ints(const char *getter, Handle descriptor, int *values, std::index_sequence<I...>) {
    return call(getter, descriptor, (&values[I])...);
}

template <size_t N> static void ask_ints(Answers &answers, const char *getter, const char *descriptor) {
    std::array<int, N> values{};
    const int result = get_ints(getter, made[descriptor], values.data(), std::make_index_sequence<N>());
    answers.add(getter, descriptor, result, values);
}

static void ask_shapes(Answers &answers) {
    int numbers[16] = {}, count = 0, type = 0, format = 0;
    ask_ints<9>(answers, "cudnnGetTensor4dDescriptor", "tensor 4d");
    int result = call("cudnnGetTensorNdDescriptor", made["tensor"], 5, &type, &count, &numbers[0], &numbers[8]);
    answers.add("cudnnGetTensorNdDescriptor", "sizes", result, numbers);
    answers.add("cudnnGetTensorNdDescriptor", "type", result, type);
    ask_ints<6>(answers, "cudnnGetFilter4dDescriptor", "filter 4d");
    std::memset(numbers, 0, sizeof numbers);
    result = call("cudnnGetFilterNdDescriptor", made["filter"], 5, &type, &format, &count, &numbers[0]);
    answers.add("cudnnGetFilterNdDescriptor", "sizes", result, numbers);
    ask_ints<8>(answers, "cudnnGetPooling2dDescriptor", "pooling 2d");
    std::memset(numbers, 0, sizeof numbers);
    result = call("cudnnGetPoolingNdDescriptor", made["pooling"], 3, &type, &format, &count, &numbers[0], &numbers[5], &numbers[10]);
    answers.add("cudnnGetPoolingNdDescriptor", "sizes", result, numbers);
    ask_ints<8>(answers, "cudnnGetConvolution2dDescriptor", "convolution 2d");
    std::memset(numbers, 0, sizeof numbers);
    result = call("cudnnGetConvolutionNdDescriptor", made["convolution"], 3, &count, &numbers[0], &numbers[5], &numbers[10], &type, &format);
    answers.add("cudnnGetConvolutionNdDescriptor", "sizes", result, numbers);
    for (const char *getter : {"cudnnGetConvolutionMathType", "cudnnGetConvolutionGroupCount", "cudnnGetConvolutionReorderType"})
        get<int>(answers, getter, "", made["convolution"]);
    std::memset(numbers, 0, sizeof numbers);
    result = call("cudnnGetTensorTransformDescriptor", made["transform"], 4u, &format, &numbers[0], &numbers[4], (unsigned *)&numbers[8], &type);
    answers.add("cudnnGetTensorTransformDescriptor", "", result, numbers);
}

static void ask_functions(Answers &answers) {
    double reals[3] = {};
    int numbers[16] = {};
    ask_ints<3>(answers, "cudnnGetOpTensorDescriptor", "operation");
    ask_ints<5>(answers, "cudnnGetReduceTensorDescriptor", "reduction");
    int result = call("cudnnGetActivationDescriptor", made["activation"], &numbers[0], &numbers[1], &reals[0]);
    answers.add("cudnnGetActivationDescriptor", "mode", result, numbers[0]);
    answers.add("cudnnGetActivationDescriptor", "coefficient", result, reals[0]);
    get<double>(answers, "cudnnGetActivationDescriptorSwishBeta", "", made["activation"]);
    result = call("cudnnGetLRNDescriptor", made["normalization"], (unsigned *)&numbers[0], &reals[0], &reals[1], &reals[2]);
    answers.add("cudnnGetLRNDescriptor", "", result, reals);
    float ratio = 0;
    void *states = nullptr;
    unsigned long long seed = 0;
    result = call("cudnnGetDropoutDescriptor", made["dropout"], handle, &ratio, &states, &seed);
    answers.add("cudnnGetDropoutDescriptor", "ratio", result, ratio);
    answers.add("cudnnGetDropoutDescriptor", "states", result, states);
    answers.add("cudnnGetDropoutDescriptor", "seed", result, seed);
    ask_ints<1>(answers, "cudnnGetCTCLossDescriptor", "loss");
    ask_ints<3>(answers, "cudnnGetCTCLossDescriptorEx", "loss ex");
    ask_ints<4>(answers, "cudnnGetCTCLossDescriptor_v8", "loss 8");
    ask_ints<4>(answers, "cudnnGetCTCLossDescriptor_v9", "loss 9");
}

static void ask_sequences(Answers &answers) {
    int numbers[16] = {};
    Handle dropout = nullptr;
    int result = call("cudnnGetRNNDescriptor_v8", made["rnn"], &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4], &numbers[5], &numbers[6], &numbers[7],
                      &numbers[8], &numbers[9], &numbers[10], &numbers[11], &dropout, (unsigned *)&numbers[12]);
    answers.add("cudnnGetRNNDescriptor_v8", "numbers", result, numbers);
    answers.add("cudnnGetRNNDescriptor_v8", "dropout", result, dropout == made["dropout"]);
    double clip[2] = {};
    result = call("cudnnRNNGetClip_v8", made["rnn"], &numbers[0], &numbers[1], &clip[0], &clip[1]);
    answers.add("cudnnRNNGetClip_v8", "", result, clip);
    result = call("cudnnRNNGetClip_v9", made["rnn"], &numbers[0], &clip[0], &clip[1]);
    answers.add("cudnnRNNGetClip_v9", "", result, clip);
    std::memset(numbers, 0, sizeof numbers);
    float filling = 0;
    result = call("cudnnGetRNNDataDescriptor", made["rnn data"], &numbers[0], &numbers[1], &numbers[2], &numbers[3], &numbers[4], 2, &numbers[5], (void *)&filling);
    answers.add("cudnnGetRNNDataDescriptor", "", result, numbers);
    std::memset(numbers, 0, sizeof numbers);
    size_t lengths = 0;
    result = call("cudnnGetSeqDataDescriptor", made["sequences"], &numbers[0], &numbers[1], 4, &numbers[2], &numbers[6], &lengths, (size_t)2, &numbers[10], (void *)&filling);
    answers.add("cudnnGetSeqDataDescriptor", "", result, numbers);
    std::memset(numbers, 0, sizeof numbers);
    int more[5] = {};
    double scale = 0;
    Handle after = nullptr;
    result = call("cudnnGetAttnDescriptor", made["attention"], (unsigned *)&numbers[0], &numbers[1], &scale, &numbers[2], &numbers[3], &numbers[4], &dropout, &after,
                  &numbers[5], &numbers[6], &numbers[7], &numbers[8], &numbers[9], &numbers[10], &numbers[11], &more[0], &more[1], &more[2], &more[3]);
    answers.add("cudnnGetAttnDescriptor", "numbers", result, numbers);
    answers.add("cudnnGetAttnDescriptor", "scale", result, scale);
}

static void log_nothing(int, void *, const void *, const char *) {}

static void ask(Answers &answers) {
    get_stream(answers, "cudnnGetStream", handle, stream);
    unsigned mask = 0;
    void *data = nullptr, (*callback)(int, void *, const void *, const char *) = nullptr;
    const int result = call("cudnnGetCallback", &mask, &data, &callback);
    answers.add("cudnnGetCallback", "", result, mask);
    ask_shapes(answers);
    ask_functions(answers);
    ask_sequences(answers);
    for (const auto &[name, attribute, type] : {std::tuple{"type", TENSOR_DATA_TYPE, TYPE_DATA_TYPE}, {"alignment", TENSOR_ALIGNMENT, TYPE_INT64}}) {
        int64_t count = 0, value = 0;
        const int asked = call("cudnnBackendGetAttribute", backend, (int)attribute, (int)type, (int64_t)1, &count, (void *)&value);
        answers.add("cudnnBackendGetAttribute", name, asked, value);
    }
}

static void set_shapes() {
    const int sizes[] = {2, 3, 4, 5, 6}, strides[] = {360, 120, 30, 6, 1}, small[] = {1, 2, 2};
    set("cudnnSetTensor4dDescriptorEx", made["tensor 4d"], (int)DOUBLE, 2, 3, 4, 5, 60, 20, 5, 1);
    set("cudnnSetTensorNdDescriptor", made["tensor"], (int)DOUBLE, 5, sizes, strides);
    set("cudnnSetFilter4dDescriptor", made["filter 4d"], (int)DOUBLE, 0, 2, 3, 4, 5);
    set("cudnnSetFilterNdDescriptor", made["filter"], (int)FLOAT, 0, 5, sizes);
    set("cudnnSetPooling2dDescriptor", made["pooling 2d"], 1, 0, 3, 3, 1, 1, 2, 2);
    set("cudnnSetPoolingNdDescriptor", made["pooling"], 1, 0, 3, sizes, small, small);
    set("cudnnSetConvolution2dDescriptor", made["convolution 2d"], 1, 2, 2, 1, 1, 1, 1, (int)FLOAT);
    set("cudnnSetConvolutionNdDescriptor", made["convolution"], 3, small, small, small, 1, (int)FLOAT);
    set("cudnnSetConvolutionMathType", made["convolution"], 1);
    set("cudnnSetConvolutionGroupCount", made["convolution"], 2);
    set("cudnnSetConvolutionReorderType", made["convolution"], 1);
    const int before[] = {1, 0, 1, 0}, after[] = {0, 1, 0, 1};
    const unsigned folds[] = {1, 2};
    set("cudnnSetTensorTransformDescriptor", made["transform"], 4u, 1, before, after, folds, 0);
}

static void set_functions() {
    set("cudnnSetOpTensorDescriptor", made["operation"], 1, (int)FLOAT, 1);
    set("cudnnSetReduceTensorDescriptor", made["reduction"], 3, (int)FLOAT, 1, 1, 0);
    set("cudnnSetActivationDescriptor", made["activation"], 3, 1, 6.5);
    set("cudnnSetActivationDescriptorSwishBeta", made["activation"], 1.5);
    set("cudnnSetLRNDescriptor", made["normalization"], 4u, 0.25, 0.5, 1.5);
    size_t bytes = 0;
    set("cudnnDropoutGetStatesSize", handle, &bytes);
    void *states;
    CHECK(cudaMalloc(&states, bytes + 1));
    set("cudnnSetDropoutDescriptor", made["dropout"], handle, 0.25f, states, bytes, 77ull);
    set("cudnnSetCTCLossDescriptor", made["loss"], (int)FLOAT);
    set("cudnnSetCTCLossDescriptorEx", made["loss ex"], (int)FLOAT, 1, 1);
    set("cudnnSetCTCLossDescriptor_v8", made["loss 8"], (int)FLOAT, 1, 1, 17);
    set("cudnnSetCTCLossDescriptor_v9", made["loss 9"], (int)FLOAT, 1, 0, 18);
}

static void set_sequences() {
    const int lengths[] = {5, 3};
    float filling = 0.5;
    set("cudnnSetRNNDescriptor_v8", made["rnn"], 0, 2, 2, 0, 0, (int)FLOAT, (int)FLOAT, 0, 16, 32, 32, 2, made["dropout"], 1u);
    set("cudnnRNNSetClip_v8", made["rnn"], 1, 0, -2.0, 3.0);
    set("cudnnRNNSetClip_v9", made["rnn"], 1, -2.0, 4.0);
    set("cudnnSetRNNDataDescriptor", made["rnn data"], (int)FLOAT, 0, 5, 2, 16, lengths, (void *)&filling);
    // Times, batches, beams and vectors.
    const int sizes[] = {5, 2, 1, 16}, axes[] = {0, 1, 2, 3};
    set("cudnnSetSeqDataDescriptor", made["sequences"], (int)FLOAT, 4, sizes, axes, (size_t)2, lengths, (void *)nullptr);
    set("cudnnSetAttnDescriptor", made["attention"], 1u, 2, 0.5, (int)FLOAT, (int)FLOAT, 0, Handle(), Handle(), 16, 16, 16, 8, 8, 8, 16, 5, 5, 2, 1);
}

static void set_all() {
    set("cudnnSetStream", handle, stream);
    set("cudnnSetCallback", 1u, (void *)nullptr, log_nothing);
    set_shapes();
    set_functions();
    set_sequences();
    const int type = DOUBLE;
    const int64_t alignment = 16;
    set("cudnnBackendSetAttribute", backend, (int)TENSOR_DATA_TYPE, (int)TYPE_DATA_TYPE, (int64_t)1, (const void *)&type);
    set("cudnnBackendSetAttribute", backend, (int)TENSOR_ALIGNMENT, (int)TYPE_INT64, (int64_t)1, (const void *)&alignment);
    const int64_t sizes[] = {2, 3, 4}, strides[] = {12, 4, 1}, id = 5;
    set("cudnnBackendSetAttribute", backend, (int)TENSOR_DIMENSIONS, (int)TYPE_INT64, (int64_t)3, (const void *)sizes);
    set("cudnnBackendSetAttribute", backend, (int)TENSOR_STRIDES, (int)TYPE_INT64, (int64_t)3, (const void *)strides);
    set("cudnnBackendSetAttribute", backend, (int)TENSOR_ID, (int)TYPE_INT64, (int64_t)1, (const void *)&id);
    set("cudnnBackendFinalize", backend);
}

Part dnn_part() {
    load({"libcudnn.so.9"});
    CHECK(cudaStreamCreate(&stream));
    CHECK(call("cudnnCreate", &handle));
    const struct {
        const char *name, *maker;
    } all[] = {{"tensor 4d", "cudnnCreateTensorDescriptor"}, {"tensor", "cudnnCreateTensorDescriptor"}, {"filter 4d", "cudnnCreateFilterDescriptor"},
               {"filter", "cudnnCreateFilterDescriptor"}, {"pooling 2d", "cudnnCreatePoolingDescriptor"}, {"pooling", "cudnnCreatePoolingDescriptor"},
               {"convolution 2d", "cudnnCreateConvolutionDescriptor"}, {"convolution", "cudnnCreateConvolutionDescriptor"},
               {"transform", "cudnnCreateTensorTransformDescriptor"}, {"operation", "cudnnCreateOpTensorDescriptor"}, {"reduction", "cudnnCreateReduceTensorDescriptor"},
               {"activation", "cudnnCreateActivationDescriptor"}, {"normalization", "cudnnCreateLRNDescriptor"}, {"dropout", "cudnnCreateDropoutDescriptor"},
               {"loss", "cudnnCreateCTCLossDescriptor"}, {"loss ex", "cudnnCreateCTCLossDescriptor"}, {"loss 8", "cudnnCreateCTCLossDescriptor"},
               {"loss 9", "cudnnCreateCTCLossDescriptor"}, {"rnn", "cudnnCreateRNNDescriptor"}, {"rnn data", "cudnnCreateRNNDataDescriptor"},
               {"sequences", "cudnnCreateSeqDataDescriptor"}, {"attention", "cudnnCreateAttnDescriptor"}};
    for (const auto &one : all) set(one.maker, &made[one.name]);
    CHECK(call("cudnnBackendCreateDescriptor", (int)BACKEND_TENSOR, &backend));
    return {ask, set_all};
}
