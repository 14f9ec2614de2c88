// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR BSD-3-Clause

//! Environment variables of NVIDIA's libraries that a guest's process sets in its worker (`vendor_environment`). Only the
//! names listed here pass; none of them refers to a file, a network interface or code to be loaded.

/// Names that pass.
pub const LIBRARY_VARIABLES: [&str; 33] = [
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
    "CUBLASLT_WORKSPACE_SIZE",
    "CUBLASLT_LOG_LEVEL",
    "CUBLASLT_LOG_MASK",
    "CUDNN_CONV_WSCAP_DBG",
    "CUSOLVER_LOG_LEVEL",
    "CUSOLVER_LOG_MASK",
    "CUSPARSE_LOG_LEVEL",
    "CUSPARSE_LOG_MASK",
    "CUSPARSELT_LOG_LEVEL",
    "CUSPARSELT_LOG_MASK",
    "NCCL_ALGO",
    "NCCL_BUFFSIZE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_LAUNCH_MODE",
    "NCCL_MAX_CTAS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_NTHREADS",
    "NCCL_NVLS_ENABLE",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_NVL_CHUNKSIZE",
    "NCCL_PROTO",
    "NCCL_SHM_DISABLE",
    "NCCL_WORK_FIFO_BYTES",
];
/// Returns whether a library may print text because of the variable with this number in [`LIBRARY_VARIABLES`].
pub fn asks_for_text(number: usize) -> bool {
    let name = LIBRARY_VARIABLES[number];
    name.contains("_LOG_") || name.starts_with("NCCL_DEBUG")
}

/// The maximum length of a value. Limits the memory that a guest takes in the worker.
pub const MAX_VARIABLE_VALUE: usize = 128;
/// The maximum length of a record: each name once, with `=`, a value and a NUL.
pub const MAX_VARIABLE_BYTES: usize = {
    let (mut bytes, mut at) = (0, 0);
    while at < LIBRARY_VARIABLES.len() {
        bytes += LIBRARY_VARIABLES[at].len() + MAX_VARIABLE_VALUE + 2;
        at += 1;
    }
    bytes
};

/// Returns whether a value passes. Without `/` and `\` it is no path. Without control characters it contains no escape
/// sequence for a terminal, in case a library prints it.
pub fn is_variable_value(value: &[u8]) -> bool {
    let passes = |byte: &u8| byte.is_ascii_alphanumeric() || b" _.,:;=+-^".contains(byte);
    value.len() <= MAX_VARIABLE_VALUE && value.iter().all(passes)
}

/// Passes `visit` the number in [`LIBRARY_VARIABLES`] and the value of each variable of a record: `NAME=VALUE`, with a NUL
/// behind each.
///
/// Returns `None` if the record has another form, is too long, or has a name or a value that does not pass, or a name twice.
/// `visit` may have been called before.
pub fn each_variable<'a>(record: &'a [u8], mut visit: impl FnMut(usize, &'a [u8])) -> Option<()> {
    if record.len() > MAX_VARIABLE_BYTES {
        return None;
    }
    let (mut rest, mut seen) = (record, [false; LIBRARY_VARIABLES.len()]);
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (variable, behind) = (&rest[..end], &rest[end + 1..]);
        let equals = variable.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&variable[..equals], &variable[equals + 1..]);
        let number = LIBRARY_VARIABLES.iter().position(|known| known.as_bytes() == name)?;
        if !is_variable_value(value) || core::mem::replace(&mut seen[number], true) {
            return None;
        }
        visit(number, value);
        rest = behind;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(record: &[u8]) -> Option<usize> {
        let mut variables = 0;
        each_variable(record, |_, _| variables += 1).map(|()| variables)
    }

    #[test]
    fn logs_are_text() {
        let asks = |name: &str| {
            let number = LIBRARY_VARIABLES.iter().position(|known| *known == name);
            asks_for_text(number.expect("a name of the list"))
        };
        assert!(asks("NCCL_DEBUG") && asks("NCCL_DEBUG_SUBSYS") && asks("CUBLASLT_LOG_LEVEL"));
        assert!(!asks("NCCL_ALGO") && !asks("CUDNN_CONV_WSCAP_DBG"));
    }

    #[test]
    fn records_have_names_that_are_known() {
        assert_eq!(count(b""), Some(0));
        assert_eq!(
            count(b"NCCL_DEBUG=INFO\0NCCL_ALGO=allreduce:tree,ring\0CUBLAS_WORKSPACE_CONFIG=\0"),
            Some(3)
        );
        for bad in [
            &b"NCCL_DEBUG=INFO"[..],
            b"NCCL_DEBUG\0",
            b"\0",
            b"=1\0",
            b"nccl_debug=INFO\0",
            b"NCCL_DEBUG =INFO\0",
            b"NCCL_NET_PLUGIN=evil\0",
            b"LD_PRELOAD=evil\0",
            b"NCCL_DEBUG=INFO\0NCCL_DEBUG=WARN\0",
            b"NCCL_DEBUG=../log\0",
            b"NCCL_DEBUG=\x1b[2J\0",
            b"NCCL_DEBUG=\xff\0",
        ] {
            assert_eq!(count(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn values_and_records_have_a_maximum() {
        let mut record = [b'1'; MAX_VARIABLE_BYTES + 1];
        record[..11].copy_from_slice(b"NCCL_DEBUG=");
        record[11 + MAX_VARIABLE_VALUE] = 0;
        assert_eq!(count(&record[..12 + MAX_VARIABLE_VALUE]), Some(1));
        record[11 + MAX_VARIABLE_VALUE] = b'1';
        record[12 + MAX_VARIABLE_VALUE] = 0;
        assert_eq!(count(&record[..13 + MAX_VARIABLE_VALUE]), None);
        assert_eq!(count(&record), None);
    }

    #[test]
    fn no_name_is_of_a_file_or_of_code() {
        for name in LIBRARY_VARIABLES {
            for word in
                ["FILE", "DEST", "PATH", "DIR", "PLUGIN", "LIB_", "IFNAME", "HOSTID", "SOCKET", "NET", "DUMP"]
            {
                assert!(!name.contains(word), "{name}");
            }
        }
    }
}
