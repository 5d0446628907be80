"""The agents that need no entry: Claude Code and Codex, where their programs are on the PATH."""

from __future__ import annotations

from collections.abc import Mapping

from workers.agents.entries import Agent, Told

_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")

#: What a server answers that is overloaded, or that lost its way to the model.
_LATER = (429, 500, 502, 503, 504, 529)
#: How Codex words that; it tells no number.
_CODEX_LATER = (
    "exceeded retry limit, last status: 429 Too Many Requests",
    "stream disconnected before completion: stream closed before response.completed",
    "We’re currently experiencing high demand, which may cause temporary errors.",  # noqa: RUF001
)

_CLAUDE = Agent(
    command=("claude", "-p", "--output-format", "stream-json", "--verbose"),
    # Nobody is there to be asked: what a doer needs is allowed, a checker looks and runs.
    doer_args=("--permission-mode", "acceptEdits", "--allowedTools", "Bash"),
    checker_args=("--allowedTools", "Bash", "--disallowedTools", "Edit,Write,NotebookEdit"),
    model_args=("--model", "{model}"),
    # Each turn has an id of its own: one that failed is not part of what the next goes on with.
    resume_args=("--resume", "{thread}", "--fork-session"),
    env=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_MAX_RETRIES",
        "CLAUDE_CONFIG_DIR",
        "DISABLE_TELEMETRY",
        *_NETWORK,
    ),
    output="lines",
    answer="[type=result].result",
    failed="[type=result][is_error=true].result",
    busy=tuple(f"[type=result][is_error=true][api_error_status={code}]" for code in _LATER),
    thread="session_id",
    thread_in="folder",
    usage=Told(
        cost_usd=("[type=result].total_cost_usd",),
        input_tokens=(
            "[type=result].usage.input_tokens",
            "[type=result].usage.cache_creation_input_tokens",
            "[type=result].usage.cache_read_input_tokens",
        ),
        cached_tokens=("[type=result].usage.cache_read_input_tokens",),
        output_tokens=("[type=result].usage.output_tokens",),
    ),
    running=Told(
        each="[type=assistant].message.id",
        input_tokens=(
            "[type=assistant].message.usage.input_tokens",
            "[type=assistant].message.usage.cache_creation_input_tokens",
            "[type=assistant].message.usage.cache_read_input_tokens",
        ),
        cached_tokens=("[type=assistant].message.usage.cache_read_input_tokens",),
        output_tokens=("[type=assistant].message.usage.output_tokens",),
    ),
)

_CODEX = Agent(
    command=("codex", "exec", "--skip-git-repo-check", "--json"),
    # Its own sandbox: a doer writes in its folder, a checker nowhere.
    doer_args=("--sandbox", "workspace-write"),
    checker_args=("--sandbox", "read-only"),
    model_args=("--model", "{model}"),
    resume_args=("fork", "{thread}", "-"),
    env=("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_HOME", *_NETWORK),
    output="lines",
    answer="[type=item.completed].item[type=agent_message].text",
    failed="[type=turn.failed].error.message",
    busy=tuple(f"[type=turn.failed].error[message={said}]" for said in _CODEX_LATER),
    thread="[type=thread.started].thread_id",
    usage=Told(
        of="conversation",
        input_tokens=("[type=turn.completed].usage.input_tokens",),
        cached_tokens=("[type=turn.completed].usage.cached_input_tokens",),
        output_tokens=("[type=turn.completed].usage.output_tokens",),
    ),
)

READY_MADE: Mapping[str, Agent] = {"claude": _CLAUDE, "codex": _CODEX}
