"""HTTP at ``pykraft.http.listener``: metrics, health checks and the console, served by aiohttp."""
