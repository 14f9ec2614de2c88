// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files with some of a library's functions, under their own names: `libcudnn_ops.so.9` has those of `libcudnn.so.9`. Programs
//! link to such a file or open it. Each of its functions jumps to the one in the library's file, which has all the state.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use cuda_library_rows::{Library, Part};

use super::library::{Place, compiler, is_newer, link_into, name_for_development, version_script};

/// The function that tells the guest's libraries from NVIDIA's.
pub(super) const IN_FRONT: &str = "vhost_cuda_in_front";

/// Links the parts of `library` into `folder`, where the file `whole` is, and writes what they are made of into `scripts`.
pub(super) fn link(
    paths: &crate::paths::Paths,
    place: Place,
    folder: &Path,
    scripts: &Path,
    library: &Library,
    whole: &str,
) -> Result<()> {
    for part in library.parts {
        let script = scripts.join(format!("{}.map", part.soname));
        let assembly = scripts.join(format!("{}.s", part.soname));
        let mut names = names(library, part);
        if place == Place::Guest {
            names.push(IN_FRONT);
        }
        write_if_changed(&script, &version_script(&names, part.soname))?;
        write_if_changed(&assembly, &jumps(&names, whole))?;
        let target = folder.join(part.soname);
        if !is_newer(&target, &[&script, &assembly, &folder.join(whole)]) {
            let mut cc = compiler(paths, place)?;
            // Nothing is needed but the library beside it, also where no function is asked for.
            cc.args(["-shared", "-nostdlib", "-Wl,-z,relro,-z,now,-z,nodelete", "-Wl,--no-as-needed"]);
            cc.arg(format!("-Wl,--version-script={}", script.display()));
            cc.args([format!("-Wl,-soname,{}", part.soname), "-Wl,-rpath,$ORIGIN".to_owned()]);
            cc.arg(&assembly).arg(folder.join(whole));
            link_into(cc, &target, |_| Ok(()))?;
        }
        if let Some((name, _)) = part.soname.rsplit_once('.') {
            name_for_development(folder, part.soname, name)?;
        }
    }
    Ok(())
}

fn names<'a>(library: &'a Library, part: &Part) -> Vec<&'a str> {
    let functions = &library.functions[part.functions.clone()];
    functions.iter().filter(|function| !function.is_form()).map(|function| function.name).collect()
}

/// Assembly of functions that jump to those of the same names and of the version `whole`.
fn jumps(names: &[&str], whole: &str) -> String {
    let mut text = String::from(".text\n");
    for name in names {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            ".symver whole_{name}, {name}@{whole}\n.globl {name}\n.type {name}, @function\n.p2align 4\n{name}:\n    endbr64\n    \
             jmp *whole_{name}@GOTPCREL(%rip)\n.size {name}, .-{name}\n"
        );
    }
    text + ".section .note.GNU-stack,\"\",@progbits\n"
}

/// Writes a file, unless it has that text: what is made of it would be made again.
pub(super) fn write_if_changed(file: &Path, text: &str) -> Result<()> {
    if fs::read_to_string(file).ok().as_deref() != Some(text) {
        fs::write(file, text).with_context(|| format!("Cannot write {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use cuda_library_rows::library;

    use super::names;

    /// cuDNN's sub-libraries, as NVIDIA splits them: each public function is in one of them.
    #[test]
    fn parts_have_all_functions_of_cudnn() {
        let (_, cudnn) = library("cudnn").expect("known");
        let parts: Vec<(&str, usize)> =
            cudnn.parts.iter().map(|part| (part.soname, names(cudnn, part).len())).collect();
        let expected = [
            ("libcudnn_graph.so.9", 24),
            ("libcudnn_ops.so.9", 100),
            ("libcudnn_cnn.so.9", 50),
            ("libcudnn_adv.so.9", 47),
            ("libcudnn_ext.so.9", 18),
            ("libcudnn_engines_precompiled.so.9", 0),
            ("libcudnn_engines_runtime_compiled.so.9", 0),
            ("libcudnn_engines_tensor_ir.so.9", 0),
            ("libcudnn_heuristic.so.9", 0),
        ];
        assert_eq!(parts, expected);
        let all: HashSet<&str> = cudnn.parts.iter().flat_map(|part| names(cudnn, part)).collect();
        assert_eq!(all.len(), cudnn.functions.iter().filter(|function| !function.is_form()).count());
    }
}
