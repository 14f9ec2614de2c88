// SPDX-License-Identifier: Apache-2.0 OR MIT
// Makes calls whose arguments are words of a table.
#pragma once

#include "table.h"

#include <cstddef>
#include <cstdint>
#include <deque>

#include <cuda.h>
#include <cuda_runtime_api.h>

// Members of structures that tables name.
struct Member {
    const char *type, *name;
    size_t offset, size;
};
#define M(type, member) {#type, #member, offsetof(type, member), sizeof(type::member)}
static const Member members[] = {
#include "members.h"
};

// Objects of the set-up, in the child.
static std::map<std::string, Word> objects;
// Room for any answer, zeroed before each call.
alignas(64) static unsigned char room[8192];

static int nothing() {
    return 0;
}

static Member member(const Buffer &of, const std::string &name) {
    if (name[0] == '@') {  // @OFFSET:SIZE
        size_t size = 8;
        const size_t offset = std::stoul(name.substr(1));
        if (name.find(':') != std::string::npos) {
            size = std::stoul(name.substr(name.find(':') + 1));
        }
        return {"", "", offset, size};
    }
    for (const Member &it : members) {
        if (of.type == it.type && name == it.name) {
            return it;
        }
    }
    fail("members.h has no " + of.type, name);
}

static Word value(const std::string &word);

static unsigned char *filled(const std::string &name) {
    Buffer &of = buffers.at(name);
    of.bytes.assign(of.size, 0);
    for (const auto &[name, text] : of.members) {
        const Member at = member(of, name);
        const Word number = value(text);
        if (at.offset + at.size > of.size || at.size > sizeof number) {
            fail("No such member", name);
        }
        std::memcpy(of.bytes.data() + at.offset, &number, at.size);
    }
    return of.bytes.data();
}

// A number, an object of the set-up, an address in one (NAME+NUMBER), a text, a buffer.
static Word value(const std::string &word) {
    static std::deque<std::string> kept;
    const auto address = [](const void *at) { return (Word)(uintptr_t)at; };
    if (word[0] == '"') {
        kept.push_back(text_of(word));
        return address(kept.back().c_str());
    }
    if (std::isdigit(word[0]) || word[0] == '-') {
        return word[0] == '-' ? (Word)std::stoll(word, nullptr, 0) : std::stoull(word, nullptr, 0);
    }
    const size_t plus = word.find('+');
    const std::string name = word.substr(0, plus);
    const Word more = plus == std::string::npos ? 0 : value(word.substr(plus + 1));
    if (name == "null" || name == "none") {
        return 0;
    }
    if (name == "forged") {
        return 0x123456789ab0;
    }
    if (name == "out") {
        return address(room) + more;
    }
    if (name == "callback") {
        return (Word)(uintptr_t)&nothing;
    }
    if (texts.count(name) != 0) {
        return address(texts[name].c_str());
    }
    if (buffers.count(name) != 0) {
        return address(filled(name)) + more;
    }
    if (objects.count(name) == 0 && mode != "before_init") {
        fail("The set-up has no object", word);
    }
    return objects[name] + more;
}

// Makes a call by the convention of x86-64: numbers and small structures in six registers, real numbers in others, the
// rest on the stack.
static int call(const Words &words) {
    Word in[6] = {}, rest[16] = {};
    double real[4] = {};
    size_t ins = 0, rests = 0, reals = 0;
    const auto give = [&](const Word *values, size_t count, bool on_stack) {
        const bool fits = !on_stack && ins + count <= 6;
        if (!fits && rests + count > 16) {
            fail("Too many arguments", words[0]);
        }
        for (size_t i = 0; i < count; i++) {
            (fits ? in[ins++] : rest[rests++]) = values[i];
        }
    };
    void *function = find(words[0]);
    if (function == nullptr) {
        return -1;
    }
    std::memset(room, 0, sizeof room);
    for (size_t i = 1; i < words.size(); i++) {
        const std::string word = words[i].substr(words[i][0] == '=');
        const bool zeros = word.rfind("zeros:", 0) == 0, ones = word.rfind("ones:", 0) == 0;
        if (zeros || ones || word[0] == '*') {  // a structure by value
            std::vector<unsigned char> bytes;
            if (word[0] == '*') {
                filled(word.substr(1));
                bytes = buffers.at(word.substr(1)).bytes;
            } else {
                bytes.assign(std::stoul(word.substr(word.find(':') + 1)), ones ? 0xff : 0);
            }
            const size_t count = (bytes.size() + 7) / 8;
            bytes.resize(count * 8);
            give(reinterpret_cast<const Word *>(bytes.data()), count, count > 2);
        } else if (word[0] == '~') {  // a float
            const float number = std::stof(word.substr(1));
            std::memcpy(&real[reals++ % 4], &number, sizeof number);
        } else {
            const Word number = value(word);
            give(&number, 1, false);
        }
    }
    using Any = int (*)(Word, Word, Word, Word, Word, Word, double, double, double, double,  //
                        Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);
    return reinterpret_cast<Any>(function)(in[0], in[1], in[2], in[3], in[4], in[5], real[0], real[1], real[2], real[3],
                                           rest[0], rest[1], rest[2], rest[3], rest[4], rest[5], rest[6], rest[7],
                                           rest[8], rest[9], rest[10], rest[11], rest[12], rest[13], rest[14],
                                           rest[15]);
}
