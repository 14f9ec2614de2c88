// SPDX-License-Identifier: Apache-2.0 OR MIT
// cuDNN's loss of connectionist temporal classification, with labels in host memory (cudnnCTCLoss) and in device memory
// (cudnnCTCLoss_v8): against sums over all alignments, and mistakes. With the argument `captured`: what both answer while their
// stream captures.

#include "library.h"

#include <cstring>

// cudnn.h
enum { FLOAT = 0, DOUBLE = 1, PROBABILITIES = 0, SOFTMAX = 1, ZERO_GRADIENTS = 0, DETERMINISTIC = 0 };

static const int STEPS = 5, BATCH = 3, ALPHABET = 4, COUNT = STEPS * BATCH * ALPHABET;

// The labels of the batch, one after the other; 0 is the blank.
static std::vector<int> labels = {1, 2, 3, 3, 2}, lengths = {2, 2, 1}, inputs = {STEPS, STEPS, STEPS};

static Handle handle;
static cudaStream_t stream;

static Handle tensor(int steps, int batch, int alphabet, int type = FLOAT) {
    const int dims[] = {steps, batch, alphabet}, strides[] = {batch * alphabet, alphabet, 1};
    Handle made;
    CHECK(call("cudnnCreateTensorDescriptor", &made));
    CHECK(call("cudnnSetTensorNdDescriptor", made, type, 3, dims, strides));
    return made;
}

static Handle loss(int normalisation, int longest = 0) {
    Handle made;
    CHECK(call("cudnnCreateCTCLossDescriptor", &made));
    if (longest)
        CHECK(call("cudnnSetCTCLossDescriptor_v8", made, (int)FLOAT, normalisation, (int)ZERO_GRADIENTS, longest));
    else
        CHECK(call("cudnnSetCTCLossDescriptorEx", made, (int)FLOAT, normalisation, (int)ZERO_GRADIENTS));
    return made;
}

static void *workspace(size_t bytes) {
    void *memory = nullptr;
    if (bytes) CHECK(cudaMalloc(&memory, bytes));
    return memory;
}

// The probabilities of all steps and members of the batch.
static std::vector<double> softmax(const std::vector<float> &values) {
    std::vector<double> probabilities(values.begin(), values.end());
    for (int line = 0; line < STEPS * BATCH; line++) {
        double sum = 0;
        for (int a = 0; a < ALPHABET; a++) sum += probabilities[line * ALPHABET + a] = exp(probabilities[line * ALPHABET + a]);
        for (int a = 0; a < ALPHABET; a++) probabilities[line * ALPHABET + a] /= sum;
    }
    return probabilities;
}

// Adds up the probabilities of all rows of symbols that spell a label. The gradient is that of the values before softmax: the
// probability of a symbol, less the share of the alignments that have it there.
static void by_definition(const std::vector<double> &probabilities, std::vector<float> &costs, std::vector<float> &gradients) {
    int rows = 1;
    for (int t = 0; t < STEPS; t++) rows *= ALPHABET;
    std::vector<double> sums(BATCH), shares(COUNT);
    const int *label = labels.data();
    for (int n = 0; n < BATCH; label += lengths[n++])
        for (int row = 0; row < rows; row++) {
            int symbols[STEPS], spelled[STEPS], length = 0;
            double product = 1;
            for (int t = 0, rest = row; t < STEPS; t++, rest /= ALPHABET) {
                symbols[t] = rest % ALPHABET;
                product *= probabilities[(t * BATCH + n) * ALPHABET + symbols[t]];
                if (symbols[t] != 0 && (t == 0 || symbols[t] != symbols[t - 1])) spelled[length++] = symbols[t];
            }
            if (length != lengths[n] || memcmp(spelled, label, length * sizeof(int)) != 0) continue;
            sums[n] += product;
            for (int t = 0; t < STEPS; t++) shares[(t * BATCH + n) * ALPHABET + symbols[t]] += product;
        }
    for (int n = 0; n < BATCH; n++) costs[n] = (float)-log(sums[n]);
    for (int i = 0; i < COUNT; i++) gradients[i] = (float)(probabilities[i] - shares[i] / sums[i / ALPHABET % BATCH]);
}

static void mistake(const char *name, int status) {
    printf("%s: %s\n", name, status >= 2000 && status < 4000 ? "refused" : "ACCEPTED");
}

int main(int argc, char **) {
    load({"libcudnn.so.9"});
    CHECK(call("cudnnCreate", &handle));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(call("cudnnSetStream", handle, stream));

    auto activations = numbers(COUNT, 1);
    for (float &value : activations) value /= 4;
    const auto probabilities = softmax(activations);
    std::vector<float> wanted(BATCH), wanted_gradients(COUNT);
    by_definition(probabilities, wanted, wanted_gradients);

    const Handle shape = tensor(STEPS, BATCH, ALPHABET), of_values = loss(SOFTMAX), of_probabilities = loss(PROBABILITIES);
    float *values = on_device(activations), *given = on_device(std::vector<float>(probabilities.begin(), probabilities.end()));
    float *costs = on_device(std::vector<float>(BATCH, -1.f)), *gradients = on_device(std::vector<float>(COUNT, -1.f));

    size_t bytes = 0;
    CHECK(call("cudnnGetCTCLossWorkspaceSize", handle, shape, shape, labels.data(), lengths.data(), inputs.data(), (int)DETERMINISTIC, of_values, &bytes));
    void *room = workspace(bytes);
    const auto compute = [&](Handle what, float *from, Handle shape_of_gradients, float *to, const std::vector<int> &of, const std::vector<int> &steps,
                             size_t size) {
        return call("cudnnCTCLoss", handle, shape, from, labels.data(), of.data(), steps.data(), costs, shape_of_gradients, to, (int)DETERMINISTIC, what,
                    room, size);
    };
    CHECK(compute(of_values, values, shape, gradients, lengths, inputs, bytes));
    CHECK(cudaStreamSynchronize(stream));
    compare("labels in host memory", back(costs, BATCH), wanted, 1e-4);
    compare("their gradient", back(gradients, COUNT), wanted_gradients, 1e-4);

    CHECK(cudaMemset(costs, 0, BATCH * sizeof(float)));
    CHECK(cudaDeviceSynchronize());
    CHECK(call("cudnnGetCTCLossWorkspaceSize", handle, shape, (Handle) nullptr, labels.data(), lengths.data(), inputs.data(), (int)DETERMINISTIC,
               of_probabilities, &bytes));
    room = workspace(bytes);
    CHECK(compute(of_probabilities, given, nullptr, nullptr, lengths, inputs, bytes));
    CHECK(cudaStreamSynchronize(stream));
    compare("probabilities, without a gradient", back(costs, BATCH), wanted, 1e-4);

    const Handle of_device = loss(SOFTMAX, 8);
    int *there[] = {on_device(labels), on_device(lengths), on_device(inputs)};
    CHECK(cudaMemset(costs, 0, BATCH * sizeof(float)));
    CHECK(cudaMemset(gradients, 0, COUNT * sizeof(float)));
    CHECK(cudaDeviceSynchronize());
    size_t more = 0;
    CHECK(call("cudnnGetCTCLossWorkspaceSize_v8", handle, (int)DETERMINISTIC, of_device, shape, shape, &more));
    void *other = workspace(more);
    CHECK(call("cudnnCTCLoss_v8", handle, (int)DETERMINISTIC, of_device, shape, values, there[0], there[1], there[2], costs, shape, gradients, more, other));
    CHECK(cudaStreamSynchronize(stream));
    compare("labels in device memory", back(costs, BATCH), wanted, 1e-4);
    compare("their gradient", back(gradients, COUNT), wanted_gradients, 1e-4);

    if (argc > 1) {
        for (const bool on_the_device : {true, false}) {
            CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            const int status = on_the_device ? call("cudnnCTCLoss_v8", handle, (int)DETERMINISTIC, of_device, shape, values, there[0], there[1], there[2],
                                                    costs, shape, gradients, more, other)
                                             : compute(of_probabilities, given, nullptr, nullptr, lengths, inputs, bytes);
            cudaGraph_t graph;
            CHECK(cudaStreamEndCapture(stream, &graph));
            CHECK(cudaGraphDestroy(graph));
            printf("captured, labels in %s memory: %d\n", on_the_device ? "device" : "host", status);
        }
        return 0;
    }

    const auto room_for = [&](const std::vector<int> &of) {
        const std::vector<int> all(1024, 1);
        size_t size;
        return call("cudnnGetCTCLossWorkspaceSize", handle, shape, shape, all.data(), of.data(), inputs.data(), (int)DETERMINISTIC, of_values, &size);
    };
    mistake("gradients of another shape", compute(of_values, values, tensor(STEPS, BATCH, ALPHABET + 1), gradients, lengths, inputs, bytes));
    mistake("too little workspace", compute(of_values, values, shape, gradients, lengths, inputs, 0));
    mistake("a label that is too long", room_for({2, 300, 1}));
    mistake("more steps than there are", compute(of_values, values, shape, gradients, lengths, {STEPS, STEPS + 1, STEPS}, bytes));
    mistake("doubles", call("cudnnGetCTCLossWorkspaceSize", handle, tensor(STEPS, BATCH, ALPHABET, DOUBLE), tensor(STEPS, BATCH, ALPHABET, DOUBLE),
                            labels.data(), lengths.data(), inputs.data(), (int)DETERMINISTIC, of_values, &bytes));
    CHECK(cudaDeviceSynchronize());
    for (Handle one : {of_values, of_probabilities, of_device}) CHECK(call("cudnnDestroyCTCLossDescriptor", one));
    CHECK(call("cudnnDestroy", handle));
    printf("done\n");
}
