"""The MCP server: the same tools on stdio and, mounted by the service, at `/mcp`."""
