// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Times calls and prints what came out, one JSON object a line:
//
//   {"begin":NAME}                 the figures of NAME are being taken from here on
//   {"metric":NAME,…}              they are; "calls" counts all calls since "begin"
//   {"skip":NAME,"reason":TEXT}    this way to a device does not have it

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <vector>

using Clock = std::chrono::steady_clock;

inline double seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

// CPU time of all threads of this process.
inline double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t error_ = (call);                                                             \
        if (error_ != cudaSuccess) {                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

// The number of times that threads of this process went to sleep to wait for something.
inline long waits() {
    rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_nvcsw;
}

// Interrupts of the virtio-cuda device so far; -1 where there is no such device.
inline long interrupts() {
    FILE *file = fopen("/proc/interrupts", "r");
    if (!file) return -1;
    long sum = -1;
    char line[4096];
    while (fgets(line, sizeof line, file)) {
        if (!strstr(line, "-requestq") && !strstr(line, "-eventq")) continue;
        if (sum < 0) sum = 0;
        // "24:  12  0  PCI-MSIX-…": a count for each CPU.
        char *at = strchr(line, ':');
        if (!at) continue;
        for (at++;;) {
            char *end;
            long count = strtol(at, &end, 10);
            if (end == at || (*end != ' ' && *end != '\t')) break;
            sum += count;
            at = end;
        }
    }
    fclose(file);
    return sum;
}

// Counters of the layers below: the guest's driver in sysfs, the worker through the guest library
// (guest-lib/libcuda/src/local/bench.rs). -1 where there is no such thing.
struct Counters {
    long kicks = -1, pin_ns = -1, unpin_ns = -1, bulk_wait_ns = -1, copy_ns = -1;

    void read_driver() {
        kicks = driver("kicks");
        pin_ns = driver("pin_ns");
        unpin_ns = driver("unpin_ns");
        bulk_wait_ns = driver("bulk_wait_ns");
    }
    // A call of its own, so the driver's counters are read on the inner side of it.
    void read_worker() {
        void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
        auto read = libcuda ? reinterpret_cast<long (*)()>(dlsym(libcuda, "virtio_cuda_bench_copy_ns")) : nullptr;
        copy_ns = read ? read() : -1;
        if (libcuda) dlclose(libcuda);
    }

  private:
    static long driver(const char *name) {
        char path[96];
        snprintf(path, sizeof path, "/sys/class/misc/virtio-cuda/statistics/%s", name);
        FILE *file = fopen(path, "r");
        long value = -1;
        if (!file) return -1;
        if (fscanf(file, "%ld", &value) != 1) value = -1;
        fclose(file);
        return value;
    }
};

// One metric from its first call to its line.
class Metric {
  public:
    // `alone`: not even the worker is asked for its counters, which would wake it up.
    Metric(const char *name, size_t bytes = 0, bool alone = false) : name_(name), bytes_(bytes), alone_(alone) {
        printf("{\"begin\":\"%s\"}\n", name);
        fflush(stdout);
        if (!alone_) before_.read_worker();
        before_.read_driver();
        interrupts_ = interrupts();
        waits_ = waits();
    }

    // Runs `work`, which makes `calls` calls, and counts its CPU time; returns its duration in seconds.
    template <class Work> double time(long calls, Work &&work) {
        double cpu = cpu_seconds();
        auto start = Clock::now();
        work();
        double taken = seconds(start);
        cpu_ += cpu_seconds() - cpu;
        cpu_calls_ += calls;
        calls_ += calls;
        return taken;
    }

    // Times a call by itself, for the distribution; its CPU time is not counted, since asking for it is not free.
    template <class Work> void time_single(Work &&work) {
        auto start = Clock::now();
        work();
        singles_.push_back(1e6 * seconds(start));
        calls_++;
    }

    void add(double sample) { samples_.push_back(sample); }
    size_t samples() const { return samples_.size(); }
    // More calls that `time` could not know of, or that were not timed.
    void counted(long calls) { calls_ += calls, cpu_calls_ += calls; }
    void uncounted(long calls) { calls_ += calls; }
    // Something else than the calls was done in between: the CPU time of a whole guest would say nothing.
    void mixed() { mixed_ = true; }

    void report(const char *unit) {
        long waits_now = waits(), interrupts_now = interrupts();
        Counters now;
        now.read_driver();
        if (!alone_) now.read_worker();
        double median = quantile(samples_, 0.5), p10 = quantile(samples_, 0.1), p90 = quantile(samples_, 0.9);
        printf("{\"metric\":\"%s\",\"bytes\":%zu,\"unit\":\"%s\",\"median\":%.9g,\"p10\":%.9g,\"p90\":%.9g,"
               "\"samples\":%zu,\"calls\":%ld,\"cpu_us\":%.6g,\"waits\":%.6g",
               name_.c_str(), bytes_, unit, median, p10, p90, samples_.size(), calls_, 1e6 * cpu_ / cpu_calls_,
               double(waits_now - waits_) / calls_);
        if (interrupts_ >= 0 && interrupts_now >= 0)
            printf(",\"interrupts\":%.6g", double(interrupts_now - interrupts_) / calls_);
        each("kicks", before_.kicks, now.kicks, 1);
        if (now.copy_ns != before_.copy_ns) {
            each("pin_us", before_.pin_ns, now.pin_ns, 1e-3);
            each("unpin_us", before_.unpin_ns, now.unpin_ns, 1e-3);
            each("bulk_wait_us", before_.bulk_wait_ns, now.bulk_wait_ns, 1e-3);
            each("copy_us", before_.copy_ns, now.copy_ns, 1e-3);
        }
        if (mixed_) printf(",\"mixed\":true");
        if (!singles_.empty()) {
            // Percentiles, microseconds.
            printf(",\"distribution\":[");
            const double at[] = {0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100};
            for (double p : at) printf("%s[%g,%.6g]", p > 0 ? "," : "", p, quantile(singles_, p / 100));
            printf("]");
        }
        printf("}\n");
        fflush(stdout);
    }

  private:
    // The share of a call in what a counter has counted.
    void each(const char *name, long before, long now, double unit) const {
        if (before >= 0 && now >= 0) printf(",\"%s\":%.6g", name, unit * double(now - before) / calls_);
    }

    static double quantile(std::vector<double> &values, double q) {
        std::sort(values.begin(), values.end());
        return values[std::min(values.size() - 1, size_t(q * values.size()))];
    }

    std::string name_;
    size_t bytes_;
    bool alone_;
    std::vector<double> samples_, singles_;
    double cpu_ = 0;
    long cpu_calls_ = 0, calls_ = 0, interrupts_, waits_;
    Counters before_;
    bool mixed_ = false;
};

// The metrics to measure, by the beginnings of their names; empty for all.
inline std::vector<std::string> &selection() {
    static std::vector<std::string> names;
    return names;
}

inline bool is_wanted(const char *name) {
    const std::vector<std::string> &names = selection();
    return names.empty() || std::any_of(names.begin(), names.end(), [&](const std::string &wanted) {
               return !strncmp(name, wanted.c_str(), wanted.size());
           });
}

inline void skip(const char *name, const char *reason) {
    printf("{\"skip\":\"%s\",\"reason\":\"%s\"}\n", name, reason);
    fflush(stdout);
}

// Times `call` in batches for about `budget` seconds, then some calls one by one; microseconds a call. `settle`
// runs after each batch, untimed.
inline void latency(const char *name, int batch, double budget, const std::function<void()> &call,
                    const std::function<void()> &settle = [] {}) {
    if (!is_wanted(name)) return;
    Metric metric(name);
    call();
    settle();
    metric.uncounted(1);
    auto begin = Clock::now();
    while (metric.samples() < 5 || (seconds(begin) < budget && metric.samples() < 2000)) {
        metric.add(1e6 / batch * metric.time(batch, [&] { for (int i = 0; i < batch; i++) call(); }));
        settle();
    }
    begin = Clock::now();
    for (int i = 0; i < 2000 && seconds(begin) < budget / 2; i++) {
        metric.time_single(call);
        if (i % batch == batch - 1) settle();
    }
    settle();
    metric.report("us");
}

// Makes up to `most` calls without a pause, for at most `limit` seconds, then `finish`; microseconds a call,
// `finish` included.
inline void sustained(const char *name, size_t bytes, long most, double limit, const std::function<void()> &call,
                      const std::function<void()> &finish) {
    if (!is_wanted(name)) return;
    Metric metric(name, bytes);
    call();
    finish();
    auto begin = Clock::now();
    long done = 0;
    double taken = metric.time(0, [&] {
        while (done < most && (done % 64 || seconds(begin) < limit)) {
            call();
            done++;
        }
        finish();
    });
    metric.counted(done);
    metric.add(1e6 * taken / done);
    metric.report("us");
}
