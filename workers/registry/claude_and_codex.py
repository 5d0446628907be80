"""The built-in agents: Claude Code and Codex, usable if their programs are on the PATH."""

from __future__ import annotations

from collections.abc import Mapping

from workers.registry.agent_entry import Agent, UsagePaths

_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")

#: HTTP statuses of a server that is overloaded or cannot reach the model.
_BUSY_STATUSES = (429, 500, 502, 503, 504, 529)
#: How Claude Code's messages begin if its connection was refused or dropped; it has no status then.
_CLAUDE_CONNECTION = (
    "API Error: Unable to connect to API",
    "API Error: Connection to the API was lost",
    "API Error: Connection error",
)
#: How the messages of Codex for all of these begin; it reports no status.
_CODEX_BUSY_MESSAGES = (
    "exceeded retry limit, last status: 429 Too Many Requests",
    "stream disconnected before completion: ",
    "We’re currently experiencing high demand, which may cause temporary errors.",  # noqa: RUF001
)

#: What Claude Code may call without asking a person: tools of its own, and those of this project.
_PROJECT_TOOLS = "mcp__leadhand__*"
_READ_TOOLS = "Read,Grep,Glob"

_CLAUDE = Agent(
    command=(
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        *("--mcp-config", "{mcp_config}"),
    ),
    # No person can approve a tool call: a doer may edit and run, a checker may only read. What it
    # is not offered, the user's own permissions cannot allow.
    doer_args=("--permission-mode", "acceptEdits", "--allowedTools", f"Bash,{_PROJECT_TOOLS}"),
    checker_args=("--tools", _READ_TOOLS, "--allowedTools", f"{_READ_TOOLS},{_PROJECT_TOOLS}"),
    model_args=("--model", "{model}"),
    # Each turn gets its own session id, so that the next turn does not resume a failed one.
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
        "MCP_CONNECT_TIMEOUT_MS",
        *_NETWORK,
    ),
    output="lines",
    answer="[type=result].result",
    failed="[type=result][is_error=true].result",
    busy=(
        *(f"[type=result][is_error=true][api_error_status={code}]" for code in _BUSY_STATUSES),
        *(f"[type=result][is_error=true][result^={text}]" for text in _CLAUDE_CONNECTION),
    ),
    thread="session_id",
    thread_gone=("No conversation found with session ID",),
    thread_in="folder",
    usage=UsagePaths(
        cost_usd=("[type=result].total_cost_usd",),
        input_tokens=(
            "[type=result].usage.input_tokens",
            "[type=result].usage.cache_creation_input_tokens",
            "[type=result].usage.cache_read_input_tokens",
        ),
        cached_tokens=("[type=result].usage.cache_read_input_tokens",),
        output_tokens=("[type=result].usage.output_tokens",),
    ),
    running=UsagePaths(
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
    command=("codex", "exec", "--skip-git-repo-check", "--json", "{mcp_args}"),
    # Codex's own sandbox: a doer may write in its folder, a checker nowhere.
    doer_args=("--sandbox", "workspace-write"),
    checker_args=("--sandbox", "read-only"),
    model_args=("--model", "{model}"),
    resume_args=("fork", "{thread}", "-"),
    env=("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY", "CODEX_HOME", *_NETWORK),
    output="lines",
    answer="[type=item.completed].item[type=agent_message].text",
    failed="[type=turn.failed].error.message",
    busy=tuple(f"[type=turn.failed].error[message^={text}]" for text in _CODEX_BUSY_MESSAGES),
    # If the connection is refused, it waits without end, whatever its configuration says.
    waits=("[type=error][message^=Reconnecting... waiting for network].message",),
    thread="[type=thread.started].thread_id",
    thread_gone=("no rollout found for thread id", "missing source rollout"),
    usage=UsagePaths(
        of="conversation",
        input_tokens=("[type=turn.completed].usage.input_tokens",),
        cached_tokens=("[type=turn.completed].usage.cached_input_tokens",),
        output_tokens=("[type=turn.completed].usage.output_tokens",),
    ),
)

BUILTIN_AGENTS: Mapping[str, Agent] = {"claude": _CLAUDE, "codex": _CODEX}
