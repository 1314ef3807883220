"""Inside other SDKs: their tools, models and prompts pass through a session of ours.

    claude_agent_sdk   Claude's agents: its hooks and its permission callback
    langchain          LangChain's agents: a middleware
    pydantic_ai        pydantic-ai's agents: a capability
    openai_agents      OpenAI's agents: tools, models and the run
    agent_hooks        AGENT-HOOKS: our hooks as its interceptor, and its interceptors as hooks of ours
    asgi               HTTP applications: a middleware around every request; it needs no SDK
    texts              what hooks injected, at its place among an SDK's own messages
    refusals           what keeps an SDK's run from going on, as the error that ends it
    ending             what is tidied up when the session ends

Each of the others is an extra with the name of its SDK, and the one file that imports it. They do not know each other.
What an SDK cannot do stands in docs/adapters.md.
"""
