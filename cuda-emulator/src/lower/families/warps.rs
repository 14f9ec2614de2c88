// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Barriers, fences, and joint operations of the lanes of a warp.

use crate::execute::{BarrierKind, barrier, cluster, control, warp_ops};
use crate::lower::draft::{Arg, Width};
use crate::lower::function::Function;
use crate::lower::operands::Inst;
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;
use crate::symbols::LoadError;

pub(in crate::lower) fn lower<'a>(
    f: &mut Function<'_, 'a>,
    inst: &mut Inst<'_, 'a>,
    name: &str,
) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    match name {
        "bar" | "barrier" => block_barrier(f, inst),
        "membar" | "fence" => {
            let known = [
                "cta",
                "gl",
                "gpu",
                "sys",
                "cluster",
                "sc",
                "acq_rel",
                "acquire",
                "release",
                "proxy",
                "alias",
                "async",
                "async::generic",
                "async::shared::cta",
                "mbarrier_init",
                "global",
                "shared::cta",
                "shared::cluster",
                "sync_restrict::shared::cta",
                "sync_restrict::shared::cluster",
                "tensormap::generic",
            ];
            while m.take_any(&known).is_some() {}
            m.finish()?;
            f.emit(control::fence(), &[]);
            Ok(())
        }
        // A warp has all registers that it wants.
        "setmaxnreg" => {
            m.take_any(&["inc", "dec"]);
            for part in ["sync", "aligned", "u32"] {
                m.take(part);
            }
            m.finish()?;
            f.emit(control::nothing(), &[]);
            Ok(())
        }
        "griddepcontrol" => {
            m.take_any(&["wait", "launch_dependents"]);
            m.finish()?;
            f.emit(control::nothing(), &[]);
            Ok(())
        }
        "activemask" => {
            m.take("b32");
            m.finish()?;
            inst.expect(1)?;
            let target = f.target(inst.operand(0)?, Type::B32)?;
            f.emit(warp_ops::active_mask(), &[target]);
            Ok(())
        }
        "vote" => vote(f, inst),
        "shfl" => shuffle(f, inst),
        "match" => matching(f, inst),
        "elect" => {
            m.take("sync");
            m.finish()?;
            inst.expect(2)?;
            let members = f.source(inst.operand(1)?, Type::B32)?;
            let (value, predicate) = pair(f, inst.operand(0)?, Type::B32)?;
            f.emit(warp_ops::elect(), &[value, predicate, members]).aux = 1;
            Ok(())
        }
        _ => {
            if !m.take("sync") {
                return Err(m.unsupported());
            }
            let operation = m.take_any(&["add", "and", "or", "xor", "min", "max"]);
            let operation = m.require(operation)?;
            let (absolute, propagate) = (m.take("abs"), m.take("NaN"));
            let kind = m.kind()?;
            m.finish()?;
            inst.expect(3)?;
            let handler = if kind == Type::F32 {
                warp_ops::reduce_floats(operation, absolute, propagate)
            } else {
                warp_ops::reduce(operation, kind).filter(|_| !absolute && !propagate)
            };
            let handler = inst.modifiers.require(handler)?;
            let value = f.source(inst.operand(1)?, kind)?;
            let members = f.source(inst.operand(2)?, Type::B32)?;
            let target = f.target(inst.operand(0)?, kind)?;
            f.emit(handler, &[target, value, members]).aux = 1;
            Ok(())
        }
    }
}

/// `d|p` or `d`: a value and a predicate.
fn pair<'a>(f: &mut Function<'_, 'a>, operand: &Operand<'a>, kind: Type) -> Result<(Arg, Arg), LoadError> {
    match operand {
        Operand::Pair(value, predicate) => {
            let value = f.target(&Operand::Name(value), kind)?;
            Ok((value, f.target(&Operand::Name(predicate), Type::Pred)?))
        }
        operand => {
            let value = f.target(operand, kind)?;
            Ok((value, Arg::Def(f.temporary(Width::Predicate))))
        }
    }
}

/// Returns the member mask of a `.sync` form, operand `index`, or none without `.sync`.
fn members<'a>(
    f: &mut Function<'_, 'a>,
    inst: &Inst<'_, 'a>,
    sync: bool,
    index: usize,
) -> Result<Arg, LoadError> {
    inst.expect(if sync { index + 1 } else { index })?;
    if sync { f.source(inst.operand(index)?, Type::B32) } else { Ok(f.constant(Width::B32, 0)) }
}

fn vote<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let sync = m.take("sync");
    let mode = m.take_any(&["all", "any", "uni", "ballot"]);
    let mode = m.require(mode)?;
    let kind = m.kind()?;
    m.finish()?;
    let wanted = if mode == "ballot" { Type::B32 } else { Type::Pred };
    let handler = warp_ops::vote(mode).filter(|_| kind == wanted);
    let handler = inst.modifiers.require(handler)?;
    let members = members(f, inst, sync, 2)?;
    let source = f.source(inst.operand(1)?, Type::Pred)?;
    let target = f.target(inst.operand(0)?, kind)?;
    f.emit(handler, &[target, source, members]).aux = u32::from(sync);
    Ok(())
}

fn shuffle<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let sync = m.take("sync");
    let mode = m.take_any(&["up", "down", "bfly", "idx"]);
    let mode = m.require(mode)?;
    m.take("b32");
    m.finish()?;
    let handler = inst.modifiers.require(warp_ops::shuffle(mode))?;
    let members = members(f, inst, sync, 4)?;
    let value = f.source(inst.operand(1)?, Type::B32)?;
    let lane = f.source(inst.operand(2)?, Type::B32)?;
    let clamp = f.source(inst.operand(3)?, Type::B32)?;
    let (target, predicate) = pair(f, inst.operand(0)?, Type::B32)?;
    f.emit(handler, &[target, value, lane, clamp, members, predicate]).aux = u32::from(sync);
    Ok(())
}

fn matching<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    let mode = m.take_any(&["any", "all"]);
    let all = m.require(mode)? == "all";
    if !m.take("sync") {
        return Err(m.unsupported());
    }
    let kind = m.kind()?;
    m.finish()?;
    let handler = inst.modifiers.require(warp_ops::matching(all, kind.bytes()))?;
    let members = members(f, inst, true, 2)?;
    let value = f.source(inst.operand(1)?, kind)?;
    let (target, predicate) = pair(f, inst.operand(0)?, Type::B32)?;
    f.emit(handler, &[target, value, members, predicate]).aux = 1;
    Ok(())
}

fn block_barrier<'a>(f: &mut Function<'_, 'a>, inst: &mut Inst<'_, 'a>) -> Result<(), LoadError> {
    let m = &mut inst.modifiers;
    if m.take("warp") {
        m.take("sync");
        m.finish()?;
        inst.expect(1)?;
        let members = f.source(inst.operand(0)?, Type::B32)?;
        f.emit(warp_ops::synchronize(), &[members]).aux = 1;
        return Ok(());
    }
    if m.take("cluster") {
        let action = m.take_any(&["arrive", "wait"]);
        let arrives = m.require(action)? == "arrive";
        m.take_any(&["release", "relaxed", "acquire"]);
        m.take("aligned");
        m.finish()?;
        let handler = if arrives { cluster::arrive() } else { cluster::wait() };
        f.emit(handler, &[]);
        return Ok(());
    }
    m.take("cta");
    let action = m.take_any(&["sync", "arrive", "red"]);
    let action = m.require(action)?;
    m.take("aligned");
    let reduction = if action == "red" { m.take_any(&["popc", "and", "or"]) } else { None };
    let kind = match (action, reduction) {
        ("sync", _) => BarrierKind::Sync,
        ("arrive", _) => BarrierKind::Arrive,
        (_, Some("popc")) => BarrierKind::CountTrue,
        (_, Some("and")) => BarrierKind::AllTrue,
        (_, Some("or")) => BarrierKind::AnyTrue,
        _ => return Err(m.unsupported()),
    };
    let result = if action == "red" { Some(m.kind()?) } else { None };
    m.finish()?;
    // Without bar.red: name and count. With it: result, name, count, predicate, the count optional.
    let reduces = usize::from(action == "red");
    let count = inst.count();
    let has_count = count == 2 + 2 * reduces;
    if count > 2 + 2 * reduces || (action == "arrive" && !has_count) {
        return Err(f.error(format!("`{}` with {count} operands", inst.ast.opcode)));
    }
    let name = f.source(inst.operand(reduces)?, Type::U32)?;
    let threads =
        if has_count { f.source(inst.operand(reduces + 1)?, Type::U32)? } else { f.constant(Width::B32, 0) };
    let (target, predicate) = match result {
        None => (Arg::None, Arg::None),
        Some(kind) => {
            let wanted = if reduction == Some("popc") { Type::U32 } else { Type::Pred };
            inst.modifiers.require((kind == wanted).then_some(()))?;
            let predicate = f.source(inst.operand(count - 1)?, Type::Pred)?;
            (f.target(inst.operand(0)?, wanted)?, predicate)
        }
    };
    let draft = f.emit(barrier::barrier(), &[target, name, threads, predicate]);
    draft.aux = kind as u32 | u32::from(has_count) << 8;
    Ok(())
}
