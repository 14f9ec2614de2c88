# shellcheck shell=sh disable=SC2034
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Names that prolog and epilog share.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
folder=/etc/vhost-user-cuda
instance=slurm-${SLURM_JOB_ID:?is not set: slurmd runs this}
unit=vhost-user-cuda@$instance
socket=/run/vhost-user-cuda/$instance.sock
options_of_job=$folder/$instance.toml

fail() {
    echo "vhost-cuda: job $SLURM_JOB_ID: $1" >&2
    exit 1
}

# Prints one property of the job. A property each, because others contain text of the user.
property() {
    squeue --noheader --jobs="$SLURM_JOB_ID" --Format="$1:1000"
}

# Prints the number of shards that the job has on this node; nothing if it has whole GPUs.
shards_of_job() {
    for other in tres-per-job tres-per-socket tres-per-task; do
        case $(property "$other") in
        *shard*) fail "it has asked for shards by $other: only --gres=shard:N is supported" ;;
        esac
    done
    # As `gres:shard:8`, `gres:shard:h100:8` or `gres:shard`.
    property tres-per-node | tr -d ' ' | tr ',' '\n' | awk -F: '
        $1 == "gres" { for (i = 1; i < NF; i++) $i = $(i + 1); NF-- }
        $1 == "shard" { count += $NF ~ /^[0-9]+$/ ? $NF : 1 }
        END { if (count) print count }
    '
}
