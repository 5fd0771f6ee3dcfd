"""PPO over a vector of environments, in one file."""

import argparse
import os
import time

import numpy as np
import torch
import torch.nn as nn
from step_clock import StepClock
from torch.distributions.categorical import Categorical


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--exp-name", type=str, default="ppo")
    parser.add_argument("--learning-rate", type=float, default=2.5e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=5_000_000)
    parser.add_argument("--num-envs", type=int, default=8, help="parallel game environments")
    parser.add_argument("--num-steps", type=int, default=64, help="steps of each policy rollout")
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--num-minibatches", type=int, default=8)
    parser.add_argument("--update-epochs", type=int, default=4)
    parser.add_argument("--clip-coef", type=float, default=0.2)
    args = parser.parse_args()
    args.batch_size = int(args.num_envs * args.num_steps)
    args.minibatch_size = int(args.batch_size // args.num_minibatches)
    return args


class Cart:
    """A pole on a cart."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.state.astype(np.float32)

    def step(self, action):
        x, v, a, w = self.state
        force = 10.0 if action else -10.0
        temp = (force + 0.05 * w * w * np.sin(a)) / 1.1
        wacc = (9.8 * np.sin(a) - np.cos(a) * temp) / (0.5 * (4 / 3 - 0.1 * np.cos(a) ** 2 / 1.1))
        vacc = temp - 0.05 * wacc * np.cos(a) / 1.1
        self.state = np.array([x + 0.02 * v, v + 0.02 * vacc, a + 0.02 * w, w + 0.02 * wacc])
        done = bool(abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21)
        obs = self.reset() if done else self.state.astype(np.float32)
        return obs, 1.0, done


class SyncVectorEnv:
    def __init__(self, envs):
        self.envs = envs

    def reset(self):
        return np.stack([env.reset() for env in self.envs])

    def step(self, actions):
        obs, rewards, dones = zip(*(env.step(a) for env, a in zip(self.envs, actions)))
        return np.stack(obs), np.array(rewards, np.float32), np.array(dones, np.float32)


def layer_init(layer, std=np.sqrt(2), bias=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(
            layer_init(nn.Linear(4, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(),
            layer_init(nn.Linear(64, 1), std=1.0),
        )  # fmt: skip
        self.actor = nn.Sequential(
            layer_init(nn.Linear(4, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(),
            layer_init(nn.Linear(64, 2), std=0.01),
        )  # fmt: skip

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


if __name__ == "__main__":
    args = parse_args()
    run_name = f"{args.exp_name}__{args.seed}__{int(time.time())}"
    os.makedirs(f"runs/{run_name}", exist_ok=True)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    envs = SyncVectorEnv([Cart(args.seed + i) for i in range(args.num_envs)])
    agent = Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    obs, actions = torch.zeros((*shape, 4)), torch.zeros(shape)
    logprobs, rewards = torch.zeros(shape), torch.zeros(shape)
    dones, values = torch.zeros(shape), torch.zeros(shape)
    next_obs = torch.from_numpy(envs.reset())
    next_done = torch.zeros(args.num_envs)
    clock = StepClock()
    for update in range(1, args.total_timesteps // args.batch_size + 1):
        for step in range(args.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.get_action_and_value(next_obs)
                values[step] = value.flatten()
            actions[step], logprobs[step] = action, logprob
            next_obs, reward, next_done = map(torch.from_numpy, envs.step(action.numpy()))
            rewards[step] = reward
        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages, last = torch.zeros_like(rewards), 0
            for t in reversed(range(args.num_steps)):
                end = t == args.num_steps - 1
                alive = 1.0 - (next_done if end else dones[t + 1])
                following = next_value if end else values[t + 1]
                delta = rewards[t] + args.gamma * following * alive - values[t]
                last = advantages[t] = delta + args.gamma * args.gae_lambda * alive * last
            returns = advantages + values
        b_obs, b_actions = obs.reshape(-1, 4), actions.reshape(-1)
        b_logprobs, b_advantages = logprobs.reshape(-1), advantages.reshape(-1)
        b_returns = returns.reshape(-1)
        b_inds = np.arange(args.batch_size)
        for epoch in range(args.update_epochs):
            np.random.shuffle(b_inds)
            for start in range(0, args.batch_size, args.minibatch_size):
                mb = b_inds[start : start + args.minibatch_size]
                _, newlogprob, entropy, newvalue = agent.get_action_and_value(
                    b_obs[mb], b_actions.long()[mb]
                )
                ratio = (newlogprob - b_logprobs[mb]).exp()
                adv = b_advantages[mb]
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(-adv * ratio, -adv * clipped).mean()
                v_loss = 0.5 * ((newvalue.view(-1) - b_returns[mb]) ** 2).mean()
                loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                clock.tick(len(mb))
        if update % 20 == 0:
            print(f"update {update}, loss {loss.item():.3f}")
